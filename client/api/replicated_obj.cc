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
#include "client/pool/warm_up_call.h"
#include "client/pool/worker_steps.h"
#include "client/program/caller_modes.h"
#include "client/program/process_fork.h"
#include "isopool/method.h"

namespace isopool {

namespace {

using client::ObjectUnloaded;

// An Obj for the object in the session's worker, where it is defined if necessary.
Obj objectIn(const SessionImpl& session, const ReplicatedObjImpl& object,
             const client::Deadline& deadline) {
  client::Pool& pool = *session.pool;
  client::WorkerLink& channel = *session.channel;
  const base::HandleId handle = channel.nextHandle();
  for (;;) {
    pool.setup().define(channel, object.definition, deadline, &object.replicas);
    object.replicas.restore(channel, deadline);
    client::RequestDraft& draft = client::requestDraft();
    draft.writer.packer().pack_array(2).pack(object.definition.object).pack(handle.value);
    try {
      client::step(pool, channel, ipc::Operation::kObjectHandle, draft, deadline);
      return Obj(std::make_shared<InterpreterObj>(session, handle));
    } catch (const ObjectUnloaded&) {
      channel.definedObjects.remove(object.definition.object);
    }
  }
}

// Throws Error if the workers are of a release that lacks what a call needs.
void checkRelease(client::Pool& pool, const char* need) {
  constexpr uint32_t kSince = 4;
  const auto connection = pool.connection();
  if (!connection || connection->protocolVersion() >= kSince) return;
  throw Error(std::string("the shared supervisor is of an older release, whose workers have no ") +
              need + ": restart it with the release of this program");
}

// An Obj for a replica that only it refers to, in memory of its own.
Obj ownReplicaIn(const SessionImpl& session, const ReplicatedObjImpl& object,
                 const client::Deadline& deadline) {
  if (object.definition.operation != ipc::Operation::kDefineObject) {
    throw Error(
        "a model by value (an object of createMovable(), in Python a function or 'app.py:factory') "
        "shares its tensors with all workers: a session can't have a replica of its own of it");
  }
  client::Pool& pool = *session.pool;
  client::WorkerLink& channel = *session.channel;
  checkRelease(pool, "replicas of their own for sessions");
  const client::ObjectDefinition own = client::anotherOf(object.definition);
  const base::HandleId handle = channel.nextHandle();
  client::RequestDraft& loading = client::requestDraft();
  client::draftDefinition(loading, own);
  loading.flags |= ipc::kOwnMemory;
  loading.onlyForThisCaller = true;
  client::step(pool, channel, own.operation, loading, deadline);
  // From here on only the handle keeps the object.
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2).pack(own.object).pack(handle.value);
  try {
    client::step(pool, channel, ipc::Operation::kObjectHandle, draft, deadline);
  } catch (...) {
    channel.forgetObject(own.object);
    throw;
  }
  channel.forgetObject(own.object);
  return Obj(std::make_shared<InterpreterObj>(session, handle));
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
                                     std::shared_ptr<const void> source,
                                     client::ModelOrigin modelOrigin)
    : pool(std::move(poolOfManager)),
      definition(std::move(objectDefinition)),
      replicas(pool->slots().size()),
      figures(pool->models().of(definition.name)),
      origin(std::move(modelOrigin)),
      source_(std::move(source)) {
  pool->contents().addDefinition(definition);
}

ReplicatedObjImpl::~ReplicatedObjImpl() {
  pool->warmUps().removeExpired();
  try {
    pool->contents().removeDefinition(definition.object);
  } catch (const std::bad_alloc&) {
    // The workers then keep the object as long as they serve the pool.
  }
}

std::string client::reportName(const ArchiveFile& file, const std::string& part) {
  const std::string& path = file.name();
  return path.substr(path.rfind('/') + 1) + (part.empty() ? "" : ":" + part);
}

std::shared_ptr<ReplicatedObjImpl> replicate(const std::shared_ptr<client::Pool>& pool,
                                             client::ObjectDefinition definition,
                                             std::shared_ptr<const void> source,
                                             const client::Deadline& deadline,
                                             client::ModelOrigin origin) {
  client::PoolMigration migration(*pool);
  for (;;) {
    const client::Pool::WorkerReservation reservation = migration.nextReservation(deadline);
    client::WorkerLink& channel = reservation.channel();
    try {
      if (!pool->setup().define(channel, definition, deadline, nullptr, &migration,
                                client::WorkerSetup::Need::kOnlyHere)) {
        continue;
      }
    } catch (const SupervisorLost&) {
      if (channel.dead() || !pool->awaitNextConnection(channel, deadline)) throw;
      continue;
    }
    if (channel.dead()) {
      if (pool->reconnects() && !channel.supervisorLoss().empty()) continue;
      pool->checkSupervisorOf(channel, /*started=*/true);
      throw WorkerLost(channel.death(), /*started=*/true);
    }
    auto object = client::makeForThisProcess<ReplicatedObjImpl>(
        pool, std::move(definition), std::move(source), std::move(origin));
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
  client::PoolCall call(impl(), args, &kwargs, options);
  return client::callOnPool(call, options.interrupted);
}

PendingCall ReplicatedObj::callMethodAsync(std::string method,
                                           std::function<void(const Outcome&)> callback,
                                           std::vector<at::IValue> args,
                                           std::unordered_map<std::string, c10::IValue> kwargs,
                                           const CallOptions& options) const {
  client::Pool& pool = *impl().pool;
  const auto executor = pool.executor();
  auto call = client::makeForThisProcess<AsyncCall>(impl_, std::move(method), std::move(args),
                                                    std::move(kwargs), options, std::move(callback),
                                                    executor);
  executor->submit(call);
  return PendingCall(std::move(call));
}

PendingCall ReplicatedObj::callAsync(std::vector<at::IValue> args,
                                     std::unordered_map<std::string, c10::IValue> kwargs,
                                     const CallOptions& options) const {
  return callMethodAsync({}, nullptr, std::move(args), std::move(kwargs), options);
}

PendingCall ReplicatedObj::callAsync(std::vector<at::IValue> args, CompletionQueue& queue,
                                     uint64_t tag,
                                     std::unordered_map<std::string, c10::IValue> kwargs,
                                     const CallOptions& options) const {
  return callMethodAsync({}, queue, tag, std::move(args), std::move(kwargs), options);
}

PendingCall ReplicatedObj::callMethodAsync(std::string method, CompletionQueue& queue, uint64_t tag,
                                           std::vector<at::IValue> args,
                                           std::unordered_map<std::string, c10::IValue> kwargs,
                                           const CallOptions& options) const {
  return callMethodAsync(
      std::move(method),
      [state = queue.state_, tag](const Outcome& outcome) { state->push(tag, outcome); },
      std::move(args), std::move(kwargs), options);
}

ResultStream ReplicatedObj::stream(std::vector<at::IValue> args,
                                   std::unordered_map<std::string, c10::IValue> kwargs,
                                   const CallOptions& options) const {
  return ResultStream(openStream(client::PoolCall(impl(), args, &kwargs, options), options));
}

std::vector<at::IValue> ReplicatedObj::callOnAll(
    std::vector<at::IValue> args, std::unordered_map<std::string, c10::IValue> kwargs,
    const CallOptions& options) const {
  return client::callOnEverySlot(client::PoolCall(impl(), args, &kwargs, options));
}

void ReplicatedObj::warmUp(std::vector<at::IValue> args,
                           std::unordered_map<std::string, c10::IValue> kwargs,
                           const CallOptions& options) const {
  warmUpMethod({}, std::move(args), std::move(kwargs), options);
}

void ReplicatedObj::warmUpMethod(const std::string& method, std::vector<at::IValue> args,
                                 std::unordered_map<std::string, c10::IValue> kwargs,
                                 const CallOptions& options) const {
  client::Pool& pool = *impl().pool;
  client::PoolCall call(*impl_, args, &kwargs, options);
  call.callMethod(method);
  client::WarmUps& warmUps = pool.warmUps();
  // First, so that a worker that starts meanwhile is warmed up, too.
  const uint64_t number = warmUps.add({impl_, method, args, kwargs, client::callerModes()});
  try {
    client::callOnEverySlot(call);
  } catch (...) {
    warmUps.remove(number);
    throw;
  }
  const auto connection = pool.connection();
  if (!connection || !connection->spareHasObjects()) return;
  for (auto& spare : connection->spares()) warmUps.start(std::move(spare), nullptr);
}

Method ReplicatedObj::method(std::string name) const {
  checkRelease(*impl().pool, "calls of methods by name");
  if (name.empty()) throw Error("the name of the method is empty");
  return Method(*this, std::move(name));
}

const std::string& ReplicatedObj::name() const { return impl().definition.name; }

uint64_t ReplicatedObj::rebuilt() const { return impl().replicas.rebuilt(); }

void ReplicatedObj::onRebuilt(std::function<void(size_t interpreter)> callback) {
  impl().replicas.onRebuilt(std::move(callback));
}

bool ReplicatedObj::hasattr(const char* attr, const CallOptions& options) const {
  client::PoolCall call(impl(), {}, nullptr, options);
  call.operation = ipc::Operation::kObjectHasAttribute;
  call.attribute = attr;
  return client::callOnPool(call).toBool();
}

InterpreterSession ReplicatedObj::acquireSession(const Interpreter* onThisInterpreter,
                                                 const CallOptions& options) const {
  SessionOptions session;
  session.interpreter = onThisInterpreter;
  return acquireSession(session, options);
}

InterpreterSession ReplicatedObj::acquireSession(const SessionOptions& sessionOptions,
                                                 const CallOptions& options) const {
  const ReplicatedObjImpl& object = impl();
  const std::shared_ptr<client::Pool>& pool = object.pool;
  const client::Deadline deadline = client::deadlineOf(*pool, options);
  std::shared_ptr<WorkerSlot> slot;
  if (sessionOptions.interpreter != nullptr) slot = slotOf(*sessionOptions.interpreter, *pool);
  for (int lost = 0;;) {
    InterpreterSession session(client::openSession(pool, deadline, slot));
    try {
      session.self = sessionOptions.ownReplica ? ownReplicaIn(*session.impl_, object, deadline)
                                               : objectIn(*session.impl_, object, deadline);
      return session;
    } catch (const WorkerLost& death) {
      // No code of the caller has run there: tries again on the replacement.
      if (!session.impl_->channel->dead() || client::isLastLoss(death, lost)) throw;
    } catch (const SupervisorLost&) {
      if (!session.impl_->channel->dead() || !pool->reconnects()) throw;
    }
  }
}

Obj ReplicatedObj::toObj(InterpreterSession* I, const CallOptions& options) const {
  const ReplicatedObjImpl& object = impl();
  if (I == nullptr || !I->impl_) throw Error("toObj() needs a session");
  if (I->impl_->pool != object.pool) {
    throw Error("the session belongs to another manager than the object");
  }
  return objectIn(*I->impl_, object, client::deadlineOf(*object.pool, options));
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
