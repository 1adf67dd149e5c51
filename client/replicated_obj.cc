// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/replicated_obj.h"

#include "client/broadcast.h"
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

using Fill = std::function<void(client::RequestDraft&)>;

// One call, until a worker has answered it.
class PoolCall {
 public:
  PoolCall(const ReplicatedObjImpl& object, ipc::Operation operation, const CallOptions& options,
           const Fill& fill)
      : object_(object),
        pool_(*object.pool),
        operation_(operation),
        options_(options),
        deadline_(deadlineOf(options)),
        fill_(fill) {}

  // On whichever worker is free: runs elsewhere when its worker died before it started.
  at::IValue onPool() {
    for (;;) {
      client::Pool::Turn turn = pool_.acquireTurn(deadline_);
      if (auto answer = tryOn(turn.channel())) return *std::move(answer);
    }
  }

  // On the worker of one slot, or its replacement.
  at::IValue onSlot(WorkerSlot& slot) {
    for (;;) {
      const auto channel = pool_.liveChannel(slot, deadline_);
      if (auto answer = tryOn(*channel)) return *std::move(answer);
    }
  }

 private:
  // Nothing if it has not run and is to be tried again.
  std::optional<at::IValue> tryOn(client::Channel& channel);
  bool prepare(client::Channel& channel);

  const ReplicatedObjImpl& object_;
  client::Pool& pool_;
  const ipc::Operation operation_;
  const CallOptions& options_;
  const Deadline deadline_;
  const Fill& fill_;
  int lost_ = 0;
};

// False if the worker died of it.
bool PoolCall::prepare(client::Channel& channel) {
  try {
    pool_.define(channel, object_.definition, deadline_, &object_.lives);
    object_.lives.restore(channel, deadline_);
    return true;
  } catch (const WorkerLost&) {
    if (!channel.dead() || ++lost_ == client::kMostLostInPreparation) throw;
    pool_.checkAfterDeath();
    return false;
  }
}

std::optional<at::IValue> PoolCall::tryOn(client::Channel& channel) {
  if (!prepare(channel)) {
    pool_.countRerun();
    return std::nullopt;
  }
  client::RequestDraft& draft = client::requestDraft();
  fill_(draft);
  if (options_.permissive) draft.flags |= ipc::kPermissive;
  const auto began = Clock::now();
  client::Answer answer = channel.exchange(operation_, draft, deadline_);
  switch (answer.fate()) {
    case Fate::kAnswered:
      pool_.noteServiceTime(Clock::now() - began);
      try {
        return answer.take();
      } catch (const ObjectUnloaded&) {
        // Between our definition and our call: it did not run, and is tried again from the start.
        pool_.forget(channel, object_.definition.object);
        return std::nullopt;
      }
    case Fate::kNeverStarted:
      pool_.check();
      pool_.countRerun();
      return std::nullopt;
    case Fate::kLost:
      pool_.checkAfterDeath();
      if (options_.idempotent) {
        pool_.countRerun();
        return std::nullopt;
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

at::IValue callOnPool(const ReplicatedObjImpl& object, ipc::Operation operation,
                      const CallOptions& options, const Fill& fill) {
  return PoolCall(object, operation, options, fill).onPool();
}

// The object in a session's worker, made there if need be.
Obj objectIn(const SessionImpl& session, const ReplicatedObjImpl& object) {
  client::Pool& pool = *session.pool;
  client::Channel& channel = *session.channel;
  const ipc::HandleId handle = channel.nextHandle();
  for (;;) {
    pool.define(channel, object.definition, std::nullopt, &object.lives);
    object.lives.restore(channel, std::nullopt);
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
  if (!slot) throw Error("an Interpreter that was moved from can't be used");
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
      lives(pool->slots().size()),
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

std::vector<at::IValue> ReplicatedObj::callOnAll(
    std::vector<at::IValue> args, std::unordered_map<std::string, c10::IValue> kwargs,
    const CallOptions& options) const {
  const ReplicatedObjImpl& object = impl();
  client::Pool& pool = *object.pool;
  pool.check();
  const Fill fill = [&](client::RequestDraft& draft) {
    draft.writer.packer().pack_array(3).pack(object.definition.object);
    client::draftArguments(draft, args, kwargs);
  };
  try {
    return client::onEverySlot(pool, [&](const std::shared_ptr<WorkerSlot>& slot) {
      const client::Pool::User user(pool, *slot);
      return PoolCall(object, ipc::Operation::kCallObject, options, fill).onSlot(*slot);
    });
  } catch (const ipc::ValueError& error) {
    throw Error(error.what());
  }
}

uint64_t ReplicatedObj::rebuilt() const { return impl().lives.rebuilt(); }

void ReplicatedObj::onRebuilt(std::function<void(size_t interpreter)> callback) {
  impl().lives.onRebuilt(std::move(callback));
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
  for (int lost = 0;;) {
    InterpreterSession session(client::openSession(pool, slot));
    try {
      session.self = objectIn(*session.impl_, object);
      return session;
    } catch (const WorkerLost&) {
      // Nothing of the caller's has run there: the replacement serves as well.
      if (!session.impl_->channel->dead() || ++lost == client::kMostLostInPreparation) throw;
    }
  }
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
    object.lives.unloaded(slot.index);
    const auto channel = pool.currentChannel(slot);
    // A worker that is being replaced has nothing to unload.
    if (channel) pool.unload(*channel, object.definition.object);
  };
  if (onThisInterpreter != nullptr) return unloadFrom(*slotOf(*onThisInterpreter, pool));
  for (const auto& slot : pool.slots()) unloadFrom(*slot);
}

}  // namespace isopool
