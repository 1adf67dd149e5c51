// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/replicated_obj.h"

#include <new>

#include "client/api/result_stream.h"
#include "client/pool/async_executor.h"
#include "client/pool/broadcast.h"
#include "client/pool/completion_queue.h"
#include "client/pool/interpreter_access.h"
#include "client/pool/pool_call.h"
#include "client/pool/pool_migration.h"
#include "client/pool/replicated_object.h"
#include "client/pool/worker_steps.h"
#include "client/program/process_fork.h"

namespace isopool {

namespace {

using client::ObjectUnloaded;

// An Obj for the object in the session's worker, where it is defined if necessary.
Obj objectIn(const SessionImpl& session, const ReplicatedObjImpl& object) {
  client::Pool& pool = *session.pool;
  client::WorkerLink& channel = *session.channel;
  const base::HandleId handle = channel.nextHandle();
  for (;;) {
    pool.setup().define(channel, object.definition, std::nullopt, &object.replicas);
    object.replicas.restore(channel, std::nullopt);
    client::RequestDraft& draft = client::requestDraft();
    draft.writer.packer().pack_array(2).pack(object.definition.object).pack(handle.value);
    try {
      client::step(pool, channel, ipc::Operation::kObjectHandle, draft);
      return Obj(std::make_shared<InterpreterObj>(session, handle));
    } catch (const ObjectUnloaded&) {
      channel.definedObjects.remove(object.definition.object);
    }
  }
}

// The slot of an Interpreter. Throws Error if it belongs to another pool.
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
      replicas(pool->slots().size()),
      source_(std::move(source)) {
  if (const auto connection = pool->connection()) connection->addDefinition(definition);
}

ReplicatedObjImpl::~ReplicatedObjImpl() {
  const auto connection = pool->connection();
  if (!connection) return;
  try {
    connection->removeDefinition(definition.object);
  } catch (const std::bad_alloc&) {
    // The workers then keep the object as long as they serve the pool.
  }
}

std::shared_ptr<ReplicatedObjImpl> replicate(const std::shared_ptr<client::Pool>& pool,
                                             client::ObjectDefinition definition,
                                             std::shared_ptr<const void> source) {
  client::PoolMigration migration(*pool);
  for (;;) {
    const client::Pool::WorkerReservation reservation = migration.nextReservation(std::nullopt);
    client::WorkerLink& channel = reservation.channel();
    if (!pool->setup().define(channel, definition, std::nullopt, nullptr, &migration)) continue;
    if (channel.dead()) {
      pool->checkAfterDeath(/*started=*/true);
      throw WorkerLost(channel.death(), /*started=*/true);
    }
    auto object = client::makeForThisProcess<ReplicatedObjImpl>(pool, std::move(definition),
                                                                std::move(source));
    object->replicas.begun(channel);
    return object;
  }
}

ReplicatedObj::ReplicatedObj(std::shared_ptr<ReplicatedObjImpl> impl) : impl_(std::move(impl)) {}

const ReplicatedObjImpl& ReplicatedObj::impl() const {
  if (!impl_) throw Error("a default-constructed ReplicatedObj refers to no object");
  return *impl_;
}

at::IValue ReplicatedObj::operator()(at::ArrayRef<at::IValue> args) const {
  return client::callOnPool(client::PoolCall(impl(), args));
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
  return client::callOnPool(client::PoolCall(impl(), args, &kwargs, options));
}

PendingCall ReplicatedObj::callAsyncWith(std::function<void(const Outcome&)> callback,
                                         std::vector<at::IValue> args,
                                         std::unordered_map<std::string, c10::IValue> kwargs,
                                         const CallOptions& options) const {
  client::Pool& pool = *impl().pool;
  const auto executor = pool.executor();
  auto call = client::makeForThisProcess<AsyncCall>(impl_, std::move(args), std::move(kwargs),
                                                    options, std::move(callback), executor);
  executor->submit(call);
  return PendingCall(std::move(call));
}

PendingCall ReplicatedObj::callAsync(std::vector<at::IValue> args,
                                     std::unordered_map<std::string, c10::IValue> kwargs,
                                     const CallOptions& options) const {
  return callAsyncWith(nullptr, std::move(args), std::move(kwargs), options);
}

PendingCall ReplicatedObj::callAsync(std::vector<at::IValue> args, CompletionQueue& queue,
                                     uint64_t tag,
                                     std::unordered_map<std::string, c10::IValue> kwargs,
                                     const CallOptions& options) const {
  return callAsyncWith(
      [state = queue.state_, tag](const Outcome& outcome) { state->push(tag, outcome); },
      std::move(args), std::move(kwargs), options);
}

ResultStream ReplicatedObj::stream(std::vector<at::IValue> args,
                                   std::unordered_map<std::string, c10::IValue> kwargs,
                                   const CallOptions& options) const {
  try {
    return ResultStream(openStream(client::PoolCall(impl(), args, &kwargs, options), options));
  } catch (const ipc::ValueError& error) {
    throw Error(error.what());
  }
}

std::vector<at::IValue> ReplicatedObj::callOnAll(
    std::vector<at::IValue> args, std::unordered_map<std::string, c10::IValue> kwargs,
    const CallOptions& options) const {
  client::Pool& pool = *impl().pool;
  const client::PoolCall call(impl(), args, &kwargs, options);
  return client::onEverySlot(pool, [&](const std::shared_ptr<WorkerSlot>& slot) {
    const client::Pool::User user(pool, *slot);
    return client::callOnSlot(call, *slot);
  });
}

uint64_t ReplicatedObj::rebuilt() const { return impl().replicas.rebuilt(); }

void ReplicatedObj::onRebuilt(std::function<void(size_t interpreter)> callback) {
  impl().replicas.onRebuilt(std::move(callback));
}

bool ReplicatedObj::hasattr(const char* attr) const {
  client::PoolCall call(impl());
  call.operation = ipc::Operation::kObjectHasAttribute;
  call.attribute = attr;
  return client::callOnPool(call).toBool();
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
      // No code of the caller has run there: tries again on the replacement.
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
    object.replicas.unloaded(slot.index);
    const auto channel = pool.currentLink(slot);
    // A worker that is being replaced has nothing to unload.
    if (channel) pool.setup().unload(*channel, object.definition.object);
  };
  if (onThisInterpreter != nullptr) return unloadFrom(*slotOf(*onThisInterpreter, pool));
  for (const auto& slot : pool.slots()) unloadFrom(*slot);
}

}  // namespace isopool
