// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "client/pool/module_sources.h"
#include "client/pool/replica_tracker.h"
#include "client/transport/deadline.h"
#include "client/transport/object_definition.h"
#include "client/transport/worker_link.h"
#include "isopool/environment.h"

namespace isopool {

class WorkerSlot;

namespace client {

class Pool;
class PoolMigration;

/// What a worker of a pool needs before it runs a call, in this order: the program's environment,
/// the modules that the program registered, the object that is called. Each life of a worker gets
/// all of it anew. Any thread; one thread at a time prepares a worker (WorkerLink::preparation()).
class WorkerSetup {
 public:
  /// Who needs an object that is being loaded.
  enum class Need : uint8_t {
    kLater,    ///< calls that follow, too
    kOnlyHere  ///< only the present caller, who gets no object if the loading fails
  };

  /// `pool` owns this.
  WorkerSetup(Pool& pool, std::shared_ptr<Environment> environment,
              std::shared_ptr<ModuleSources> modules);

  /// Applies the environment to the worker unless that was done before: calls the user's code on
  /// this thread, which no deadline ends, and waits while another thread does that. Throws
  /// DeadlineExceeded if that takes too long, and what the environment throws; then the next use
  /// applies it again. The second form does nothing if the worker serves no slot any more.
  void configure(const std::shared_ptr<WorkerSlot>& slot, WorkerLink& channel,
                 const Deadline& deadline);
  void configure(WorkerLink& channel, const Deadline& deadline);
  /// Inside configure(): the worker to which this thread applies the environment. Else null.
  static const WorkerLink* configuredByThisThread();
  /// Sends the worker the registered modules that it does not have yet. Call before each request
  /// that may import one. Mostly costs one load. Returns without an error if the worker dies
  /// meanwhile: the request that follows finds that. False if `migration` has found another worker.
  /// Throws DeadlineExceeded, and what WorkerLink::exchange() throws.
  bool syncModules(WorkerLink& channel, const Deadline& deadline,
                   PoolMigration* migration = nullptr) {
    return channel.taughtModules.load(std::memory_order_acquire) == modules_->count() ||
           sendNewModules(channel, deadline, migration);
  }
  /// Makes the worker unpickle the object if it does not have it, and notes that in `replicas`
  /// unless null. False if that is to be done by another worker: `migration` has found one that is
  /// free earlier, or, with Need::kOnlyHere, this one died before it began. True also if the worker
  /// died otherwise: the request that follows finds that.
  /// If the deadline passes, the worker continues and the next call can use the object; with
  /// Need::kOnlyHere the worker is killed, because there is no next call.
  ///
  /// Throws RemoteError, DeadlineExceeded, what configure() throws, and what
  /// WorkerLink::exchange() and Answer::take() throw; then the next use defines the object again.
  bool define(WorkerLink& channel, const ObjectDefinition& definition, const Deadline& deadline,
              ReplicaTracker* replicas, PoolMigration* migration = nullptr,
              Need need = Need::kLater);
  /// Makes the worker release the object. Objs that refer to the object keep it alive there. Does
  /// not wait. No effect if the worker is dead.
  void unload(WorkerLink& channel, uint64_t object);

 private:
  bool sendNewModules(WorkerLink& channel, const Deadline& deadline, PoolMigration* migration);

  Pool& pool_;
  const std::shared_ptr<Environment> environment_;
  const std::shared_ptr<ModuleSources> modules_;
};

}  // namespace client
}  // namespace isopool
