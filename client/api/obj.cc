// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/obj.h"

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

Obj callWith(InterpreterObj& body, at::ArrayRef<at::IValue> args,
             const std::unordered_map<std::string, c10::IValue>& kwargs) {
  const base::HandleId handle = body.channel()->nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(4).pack(body.handle().value).pack(handle.value);
  try {
    client::draftArguments(draft, args, &kwargs);
  } catch (const ipc::ValueError& error) {
    throw Error(error.what());
  }
  client::step(*body.pool(), *body.channel(), ipc::Operation::kCallHandle, draft);
  return newObj(body, handle);
}

at::IValue valueOf(InterpreterObj& body, uint32_t flags) {
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(1).pack(body.handle().value);
  draft.flags = flags;
  return client::step(*body.pool(), *body.channel(), ipc::Operation::kToValue, draft);
}

}  // namespace

at::IValue Obj::toIValue() const { return valueOf(bodyOf(baseObj_), 0); }

at::IValue Obj::toIValuePermissive() const { return valueOf(bodyOf(baseObj_), ipc::kPermissive); }

Obj Obj::operator()(at::ArrayRef<Obj> args) const {
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
  client::step(*body.pool(), *body.channel(), ipc::Operation::kCallHandle, draft);
  return newObj(body, handle);
}

Obj Obj::operator()(at::ArrayRef<at::IValue> args) const {
  return callWith(bodyOf(baseObj_), args, {});
}

Obj Obj::callKwargs(std::vector<at::IValue> args,
                    std::unordered_map<std::string, c10::IValue> kwargs) const {
  return callWith(bodyOf(baseObj_), args, kwargs);
}

Obj Obj::callKwargs(std::unordered_map<std::string, c10::IValue> kwargs) const {
  return callWith(bodyOf(baseObj_), {}, kwargs);
}

bool Obj::hasattr(const char* attr) const {
  InterpreterObj& body = bodyOf(baseObj_);
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2).pack(body.handle().value).pack(std::string(attr));
  return client::step(*body.pool(), *body.channel(), ipc::Operation::kHasAttribute, draft).toBool();
}

Obj Obj::attr(const char* attr) const {
  InterpreterObj& body = bodyOf(baseObj_);
  const base::HandleId handle = body.channel()->nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(3).pack(body.handle().value).pack(std::string(attr));
  draft.writer.packer().pack(handle.value);
  client::step(*body.pool(), *body.channel(), ipc::Operation::kAttribute, draft);
  return newObj(body, handle);
}

}  // namespace isopool
