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
using client::ObjectUnloaded;

Deadline deadlineOf(const CallOptions& options) {
  if (!options.deadline) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(*options.deadline);
}

// A call of the pool: runs elsewhere when its worker died before it started.
at::IValue callOnPool(const ReplicatedObjImpl& object, ipc::Operation operation,
                      const CallOptions& options,
                      const std::function<void(client::RequestDraft&)>& fill) {
  client::Pool& pool = *object.pool;
  const Deadline deadline = deadlineOf(options);
  for (;;) {
    client::Pool::Turn turn = pool.acquireTurn(deadline);
    client::Channel& channel = turn.channel();
    pool.define(channel, object.definition, deadline);
    client::RequestDraft& draft = client::requestDraft();
    fill(draft);
    if (options.permissive) draft.flags |= ipc::kPermissive;
    const auto began = Clock::now();
    client::Answer answer = channel.exchange(operation, draft, deadline);
    switch (answer.fate()) {
      case Fate::kAnswered:
        pool.noteServiceTime(Clock::now() - began);
        try {
          return answer.take();
        } catch (const ObjectUnloaded&) {
          // Between our definition and our call: it did not run, and is tried again from the start.
          pool.forget(channel, object.definition.object);
          continue;
        }
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

// The object in a session's worker, made there if need be.
Obj objectIn(const SessionImpl& session, const ReplicatedObjImpl& object) {
  client::Pool& pool = *session.pool;
  client::Channel& channel = *session.channel;
  const ipc::HandleId handle = channel.nextHandle();
  for (;;) {
    pool.define(channel, object.definition, std::nullopt);
    client::RequestDraft& draft = client::requestDraft();
    draft.writer.packer().pack_array(2).pack(object.definition.object).pack(handle.value);
    try {
      client::step(pool, channel, ipc::Operation::kObjectHandle, draft);
      return Obj(std::make_shared<InterpreterObj>(session, handle));
    } catch (const ObjectUnloaded&) {
      pool.forget(channel, object.definition.object);
    }
  }
}

// The slot behind an Interpreter, which must be one of the object's manager.
std::shared_ptr<WorkerSlot> slotOf(const Interpreter& interpreter, const client::Pool& pool) {
  auto slot = InterpreterAccess::slot(interpreter);
  if (slot->pool.lock().get() != &pool) {
    throw Error("the Interpreter belongs to another manager than the object");
  }
  return slot;
}

}  // namespace

ReplicatedObjImpl::ReplicatedObjImpl(std::shared_ptr<client::Pool> poolOfManager,
                                     client::ObjectDefinition objectDefinition,
                                     std::shared_ptr<const void> source)
    : pool(std::move(poolOfManager)),
      definition(std::move(objectDefinition)),
      source_(std::move(source)) {
  if (const auto connection = pool->connection()) connection->addDefinition(definition);
}

ReplicatedObjImpl::~ReplicatedObjImpl() {
  const auto connection = pool->connection();
  if (!connection) return;
  connection->removeDefinition(definition.object);
  for (const auto& slot : pool->slots()) {
    const auto channel = pool->currentChannel(*slot);
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
  const std::shared_ptr<client::Pool>& pool = object.pool;
  std::shared_ptr<WorkerSlot> slot;
  if (onThisInterpreter != nullptr) slot = slotOf(*onThisInterpreter, *pool);
  InterpreterSession session(client::openSession(pool, std::move(slot)));
  session.self = objectIn(*session.impl_, object);
  return session;
}

Obj ReplicatedObj::toObj(InterpreterSession* I) const {
  const ReplicatedObjImpl& object = impl();
  if (I == nullptr || !I->impl_) throw Error("toObj() needs a session");
  if (I->impl_->pool != object.pool) {
    throw Error("the session belongs to another manager than the object");
  }
  return objectIn(*I->impl_, object);
}

void ReplicatedObj::unload(const Interpreter* onThisInterpreter) {
  const ReplicatedObjImpl& object = impl();
  client::Pool& pool = *object.pool;
  pool.check();
  const auto unloadFrom = [&](const WorkerSlot& slot) {
    const auto channel = pool.currentChannel(slot);
    // A worker that is being replaced has nothing to unload.
    if (channel) pool.unload(*channel, object.definition.object);
  };
  if (onThisInterpreter != nullptr) return unloadFrom(*slotOf(*onThisInterpreter, pool));
  for (const auto& slot : pool.slots()) unloadFrom(*slot);
}

}  // namespace isopool
