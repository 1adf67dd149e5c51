// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/worker_setup.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "client/pool/interpreter_access.h"
#include "client/pool/pool.h"
#include "client/pool/pool_call.h"
#include "client/pool/pool_migration.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

// The worker to which this thread is applying the environment: calls that the environment makes do
// not wait until it is applied.
thread_local const WorkerLink* configuring = nullptr;

// Locks the worker's preparation: no other thread prepares it then, and this thread can see what
// others have prepared. Returns an unlocked lock if `migration` has found another worker. Throws
// DeadlineExceeded if the lock is not free by then.
std::unique_lock<std::recursive_timed_mutex> lockPreparation(WorkerLink& channel,
                                                             const Deadline& deadline,
                                                             PoolMigration* migration = nullptr) {
  std::unique_lock lock(channel.preparation(), std::try_to_lock);
  if (lock.owns_lock()) return lock;
  if (migration != nullptr) migration->begin(Clock::now());
  while (!lock.owns_lock()) {
    if (migration != nullptr && migration->possible()) {
      if (migration->due() && migration->findPlace()) {
        migration->leave();
        return lock;
      }
      const auto look = migration->nextLook();
      (void)lock.try_lock_until(deadline ? std::min(*deadline, look) : look);
    } else if (deadline) {
      (void)lock.try_lock_until(*deadline);
    } else {
      lock.lock();
    }
    if (!lock.owns_lock() && isPast(deadline)) {
      throw DeadlineExceeded("the deadline passed while another thread prepared " + channel.name() +
                                 " for calls; this call will not run",
                             /*started=*/false);
    }
  }
  if (migration != nullptr) migration->stay();
  return lock;
}

}  // namespace

WorkerSetup::WorkerSetup(Pool& pool, std::shared_ptr<Environment> environment,
                         std::shared_ptr<ModuleSources> modules)
    : pool_(pool), environment_(std::move(environment)), modules_(std::move(modules)) {}

void WorkerSetup::configure(WorkerLink& channel, const Deadline& deadline) {
  if (const auto slot = pool_.slotServedBy(channel)) configure(slot, channel, deadline);
}

void WorkerSetup::configure(const std::shared_ptr<WorkerSlot>& slot, WorkerLink& channel,
                            const Deadline& deadline) {
  if (configuring == &channel) return;
  if (channel.configured.load(std::memory_order_acquire)) return;
  const auto lock = lockPreparation(channel, deadline);
  if (channel.configured) return;
  const WorkerLink* outer = std::exchange(configuring, &channel);
  try {
    Interpreter interpreter = InterpreterAccess::make(slot);
    environment_->configureInterpreter(&interpreter);
  } catch (...) {
    configuring = outer;
    throw;
  }
  configuring = outer;
  channel.configured = true;
}

const WorkerLink* WorkerSetup::configuredByThisThread() { return configuring; }

bool WorkerSetup::sendNewModules(WorkerLink& channel, const Deadline& deadline,
                                 PoolMigration* migration) {
  const auto lock = lockPreparation(channel, deadline, migration);
  if (!lock.owns_lock()) return false;
  // In every life of a worker, the environment is applied before the modules are sent.
  if (configuring == &channel) return true;
  for (const ModuleSources::Source& source : modules_->after(channel.taughtModules.load())) {
    // Not the thread's own draft: that may hold the request before which this one is sent.
    const auto fill = [&](RequestDraft& draft) -> RequestDraft& {
      draft.writer.packer().pack_array(2).pack(source.name).pack(source.text);
      return draft;
    };
    RequestDraft small;
    if (!channel.notify(ipc::Operation::kRegisterModule, fill(small))) {
      RequestDraft large;
      if (migration != nullptr) migration->begin(Clock::now());
      Answer answer = channel.exchange(ipc::Operation::kRegisterModule, fill(large), deadline,
                                       nullptr, migration);
      if (migration != nullptr && migration->left()) return false;
      // The request that follows finds a death or a passed deadline again.
      if (answer.outcome() != RequestOutcome::kAnswered) return true;
      answer.take();
    }
    channel.taughtModules.fetch_add(1, std::memory_order_release);
  }
  return true;
}

bool WorkerSetup::define(WorkerLink& channel, const ObjectDefinition& definition,
                         const Deadline& deadline, ReplicaTracker* replicas,
                         PoolMigration* migration, Need need) {
  if (channel.configured.load(std::memory_order_acquire) &&
      channel.definedObjects.has(definition.object)) {
    return syncModules(channel, deadline, migration);
  }
  const auto lock = lockPreparation(channel, deadline, migration);
  if (!lock.owns_lock()) return false;
  if (!channel.configured) configure(channel, deadline);
  if (!syncModules(channel, deadline, migration)) return false;
  if (channel.definedObjects.has(definition.object)) return true;
  RequestDraft& draft = requestDraft();
  draftDefinition(draft, definition);
  draft.onlyForThisCaller = need == Need::kOnlyHere;
  if (migration != nullptr) migration->begin(Clock::now());
  Answer answer = channel.exchange(definition.operation, draft, deadline, nullptr, migration);
  if (migration != nullptr && migration->left()) return false;
  const bool overdue = answer.outcome() == RequestOutcome::kOverdue;
  if (overdue && need == Need::kOnlyHere) throwOverdue(channel, "loading of the object");
  if (overdue || answer.outcome() == RequestOutcome::kWithdrawn) {
    throw DeadlineExceeded("the deadline passed before " + channel.name() +
                               " had loaded the object; the call will not run" +
                               (overdue ? ", the worker continues loading" : ""),
                           /*started=*/false);
  }
  // No request follows a load that only this caller needs, nor one that a living worker has left
  // out.
  if (answer.outcome() == RequestOutcome::kNeverStarted &&
      (need == Need::kOnlyHere || !channel.dead())) {
    return false;
  }
  // The call that follows finds a death again.
  if (answer.outcome() != RequestOutcome::kAnswered) return true;
  answer.take();
  // Before any other thread can find the object in this worker.
  if (replicas != nullptr) replicas->begun(channel);
  channel.definedObjects.add(definition.object);
  return true;
}

// Without the lock of a preparation, which may take long: if another thread defines the object at
// this moment, its call finds that it is gone, and defines it again.
void WorkerSetup::unload(WorkerLink& channel, uint64_t object) {
  channel.definedObjects.remove(object);
  // Also if the object was never called in this worker: a spare unpickles every object of the pool
  // before it serves.
  channel.forgetObject(object);
}

}  // namespace isopool::client
