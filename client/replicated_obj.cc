// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/replicated_obj.h"

#include "client/interpreter_access.h"
#include "client/replicated_object.h"
#include "client/worker_steps.h"

namespace isopool {

namespace {

using client::Clock;
using client::Deadline;
using client::Fate;

Deadline deadlineOf(const CallOptions& options) {
  if (!options.deadline) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(*options.deadline);
}

// A call of the pool: runs elsewhere when its worker died before it started.
at::IValue callOnPool(const ReplicatedObjImpl& object, ipc::Operation operation,
                      const CallOptions& options,
                      const std::function<void(client::RequestDraft&)>& fill) {
  client::Pool& pool = *object.package->pool;
  const Deadline deadline = deadlineOf(options);
  for (;;) {
    client::Pool::Turn turn = pool.acquireTurn(deadline);
    client::Channel& channel = turn.channel();
    pool.define(channel, object.definition, deadline);
    client::RequestDraft& draft = client::requestDraft();
    fill(draft);
    const auto began = Clock::now();
    client::Answer answer = channel.exchange(operation, draft, deadline);
    switch (answer.fate()) {
      case Fate::kAnswered:
        pool.noteServiceTime(Clock::now() - began);
        return answer.take();
      case Fate::kNeverStarted:
        pool.check();
        pool.countRerun();
        continue;
      case Fate::kLost:
        pool.checkAfterDeath();
        if (options.idempotent) {
          pool.countRerun();
          continue;
        }
        throw WorkerLost(channel.death(), /*started=*/true);
      case Fate::kWithdrawn:
        throw DeadlineExceeded(
            "the deadline passed before " + channel.name() + " started the call; it will not run",
            /*started=*/false);
      default:
        throw DeadlineExceeded(
            "the deadline passed while " + channel.name() + " ran the call; that worker was killed",
            /*started=*/true);
    }
  }
}

}  // namespace

ReplicatedObjImpl::ReplicatedObjImpl(std::shared_ptr<PackageImpl> packageImpl,
                                     client::ObjectDefinition objectDefinition)
    : package(std::move(packageImpl)), definition(std::move(objectDefinition)) {
  if (const auto connection = package->pool->connection()) connection->addDefinition(definition);
}

ReplicatedObjImpl::~ReplicatedObjImpl() {
  const auto connection = package->pool->connection();
  if (!connection) return;
  connection->removeDefinition(definition.object);
  for (const auto& slot : package->pool->slots()) {
    const auto channel = package->pool->currentChannel(*slot);
    if (!channel) continue;
    // Not the thread's own draft: in a static object's destructor that is gone already.
    client::RequestDraft draft;
    draft.writer.packer().pack_array(1).pack(definition.object);
    channel->notify(ipc::Operation::kForgetObject, draft);
  }
}

ReplicatedObj::ReplicatedObj(std::shared_ptr<ReplicatedObjImpl> impl) : impl_(std::move(impl)) {}

const ReplicatedObjImpl& ReplicatedObj::impl() const {
  if (!impl_) throw Error("a default-constructed ReplicatedObj refers to no object");
  return *impl_;
}

at::IValue ReplicatedObj::operator()(at::ArrayRef<at::IValue> args) const {
  const ReplicatedObjImpl& object = impl();
  try {
    return callOnPool(object, ipc::Operation::kCallObject, {}, [&](client::RequestDraft& draft) {
      draft.writer.packer().pack_array(3).pack(object.definition.object);
      client::draftArguments(draft, args, {});
    });
  } catch (const ipc::ValueError& error) {
    throw Error(error.what());
  }
}

at::IValue ReplicatedObj::callKwargs(std::vector<at::IValue> args,
                                     std::unordered_map<std::string, c10::IValue> kwargs) const {
  return call(std::move(args), std::move(kwargs), {});
}

at::IValue ReplicatedObj::callKwargs(std::unordered_map<std::string, c10::IValue> kwargs) const {
  return call({}, std::move(kwargs), {});
}

at::IValue ReplicatedObj::call(std::vector<at::IValue> args,
                               std::unordered_map<std::string, c10::IValue> kwargs,
                               const CallOptions& options) const {
  const ReplicatedObjImpl& object = impl();
  try {
    return callOnPool(object, ipc::Operation::kCallObject, options,
                      [&](client::RequestDraft& draft) {
                        draft.writer.packer().pack_array(3).pack(object.definition.object);
                        client::draftArguments(draft, args, kwargs);
                      });
  } catch (const ipc::ValueError& error) {
    throw Error(error.what());
  }
}

bool ReplicatedObj::hasattr(const char* attr) const {
  const ReplicatedObjImpl& object = impl();
  return callOnPool(object, ipc::Operation::kObjectHasAttribute, {},
                    [&](client::RequestDraft& draft) {
                      draft.writer.packer().pack_array(2).pack(object.definition.object);
                      draft.writer.packer().pack(std::string(attr));
                    })
      .toBool();
}

InterpreterSession ReplicatedObj::acquireSession(const Interpreter* onThisInterpreter) const {
  const ReplicatedObjImpl& object = impl();
  const std::shared_ptr<client::Pool>& pool = object.package->pool;
  std::shared_ptr<WorkerSlot> slot;
  if (onThisInterpreter != nullptr) {
    slot = InterpreterAccess::slot(*onThisInterpreter);
    if (slot->pool.lock() != pool) {
      throw Error("the Interpreter belongs to another manager than the object");
    }
  }
  InterpreterSession session(client::openSession(pool, std::move(slot)));
  client::Channel& channel = *session.impl_->channel;
  pool->define(channel, object.definition, std::nullopt);
  const ipc::HandleId handle = channel.nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2).pack(object.definition.object).pack(handle.value);
  client::step(*pool, channel, ipc::Operation::kObjectHandle, draft);
  session.self = Obj(std::make_shared<InterpreterObj>(pool, session.impl_->channel, handle));
  return session;
}

}  // namespace isopool
