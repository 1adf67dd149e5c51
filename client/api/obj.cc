// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/obj.h"

#include "client/pool/pool_call.h"
#include "client/pool/worker_steps.h"

namespace isopool {

namespace {

InterpreterObj& bodyOf(const std::shared_ptr<InterpreterObj>& body) {
  if (!body) throw Error("a default-constructed Obj refers to no object");
  return *body;
}

Obj newObj(const InterpreterObj& body, base::HandleId handle) {
  return Obj(std::make_shared<InterpreterObj>(body, handle));
}

at::IValue stepOn(InterpreterObj& body, ipc::Operation operation, client::RequestDraft& draft,
                  const CallOptions& options, const client::Deadline& deadline) {
  draft.flags |= client::flagsOf(options);
  draft.tag = options.tag;
  if (!body.pool()->noKill()) draft.runTime = options.runTime;
  return client::step(*body.pool(), *body.channel(), operation, draft, deadline);
}

at::IValue stepOn(InterpreterObj& body, ipc::Operation operation, client::RequestDraft& draft,
                  const CallOptions& options) {
  return stepOn(body, operation, draft, options, client::deadlineOf(*body.pool(), options));
}

Obj callWith(InterpreterObj& body, at::ArrayRef<at::IValue> args,
             const std::unordered_map<std::string, c10::IValue>& kwargs,
             const CallOptions& options) {
  const base::HandleId handle = body.channel()->nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(4).pack(body.handle().value).pack(handle.value);
  const client::Deadline deadline = client::deadlineOf(*body.pool(), options);
  try {
    client::draftArguments(draft, args, &kwargs, deadline);
  } catch (const ipc::ValueError& error) {
    throw Error(error.what());
  }
  stepOn(body, ipc::Operation::kCallHandle, draft, options, deadline);
  return newObj(body, handle);
}

at::IValue valueOf(InterpreterObj& body, uint32_t flags, const CallOptions& options) {
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(1).pack(body.handle().value);
  draft.flags = flags;
  return stepOn(body, ipc::Operation::kToValue, draft, options);
}

}  // namespace

at::IValue Obj::toIValue(const CallOptions& options) const {
  return valueOf(bodyOf(baseObj_), 0, options);
}

at::IValue Obj::toIValuePermissive(const CallOptions& options) const {
  return valueOf(bodyOf(baseObj_), ipc::kPermissive, options);
}

Obj Obj::operator()(at::ArrayRef<Obj> args) const { return call(args, {}); }

Obj Obj::call(at::ArrayRef<Obj> args, const CallOptions& options) const {
  InterpreterObj& body = bodyOf(baseObj_);
  const base::HandleId handle = body.channel()->nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  auto& packer = draft.writer.packer();
  packer.pack_array(4).pack(body.handle().value).pack(handle.value);
  packer.pack_array(static_cast<uint32_t>(args.size()));
  for (const Obj& each : args) {
    const InterpreterObj& argument = bodyOf(each.baseObj_);
    if (argument.channel() != body.channel()) {
      throw Error(
          "an Obj was passed to an object of another worker: only values cross between "
          "workers, see toIValue()");
    }
    draft.writer.addHandle(argument.handle().value);
  }
  packer.pack_map(0);
  stepOn(body, ipc::Operation::kCallHandle, draft, options);
  return newObj(body, handle);
}

Obj Obj::operator()(at::ArrayRef<at::IValue> args) const {
  return callWith(bodyOf(baseObj_), args, {}, {});
}

Obj Obj::call(std::vector<at::IValue> args, std::unordered_map<std::string, c10::IValue> kwargs,
              const CallOptions& options) const {
  return callWith(bodyOf(baseObj_), args, kwargs, options);
}

Obj Obj::callKwargs(std::vector<at::IValue> args,
                    std::unordered_map<std::string, c10::IValue> kwargs) const {
  return callWith(bodyOf(baseObj_), args, kwargs, {});
}

Obj Obj::callKwargs(std::unordered_map<std::string, c10::IValue> kwargs) const {
  return callWith(bodyOf(baseObj_), {}, kwargs, {});
}

bool Obj::hasattr(const char* attr, const CallOptions& options) const {
  InterpreterObj& body = bodyOf(baseObj_);
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2).pack(body.handle().value).pack(std::string(attr));
  return stepOn(body, ipc::Operation::kHasAttribute, draft, options).toBool();
}

Obj Obj::attr(const char* attr, const CallOptions& options) const {
  InterpreterObj& body = bodyOf(baseObj_);
  const base::HandleId handle = body.channel()->nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(3).pack(body.handle().value).pack(std::string(attr));
  draft.writer.packer().pack(handle.value);
  stepOn(body, ipc::Operation::kAttribute, draft, options);
  return newObj(body, handle);
}

}  // namespace isopool
