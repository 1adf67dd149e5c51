// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "client/control/pool_events.h"
#include "client/control/supervisor_log.h"
#include "client/transport/control_writer.h"
#include "client/transport/object_definition.h"
#include "client/transport/unawaited_watch.h"
#include "client/transport/worker_link.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"

namespace isopool::client {

/// What a spare worker does before it takes a slot.
enum class SpareWorker : uint8_t {
  kHasObjects,  ///< it unpickles the objects that the other workers have
  kEmpty,       ///< nothing: the environment has to be applied to it first
};

/// The workers that one supervisor has introduced to this process, and the pools that they serve.
/// Handles the supervisor's messages about them: maps a worker's channel, assigns the worker to a
/// pool's slot, settles its requests when it dies. It does not read from the connection and does
/// not decide when the connection has ended: the owner does both.
class ConnectedWorkers {
 public:
  /// What holds for every worker.
  struct Rules {
    uint64_t connection = 0;               ///< see SupervisorConnection::number()
    std::vector<std::string> pythonPaths;  ///< folders for sys.path
    SpareWorker spare = SpareWorker::kEmpty;
    /// How long a worker may run clean-up code before it is killed; 0: without limit.
    std::chrono::milliseconds cleanupLimit{0};
    EventLog log;  ///< for lines of the supervisor's log while there is no pool
  };

  ConnectedWorkers(Rules rules, std::shared_ptr<ControlWriter> writer,
                   std::shared_ptr<UnawaitedWatch> watch);

  /// The supervisor's greeting. Call before the first message is handled and before another thread
  /// uses this object.
  void greeted(const ipc::Welcome& welcome) { welcome_ = welcome; }

  // Any thread. See the members of SupervisorConnection with the same names.

  base::PoolId openPool(uint32_t workers, std::weak_ptr<PoolEvents> events);
  void closePool(base::PoolId pool);
  void drained() noexcept;
  void addDefinition(const ObjectDefinition& definition);
  void removeDefinition(uint64_t object);
  std::vector<std::shared_ptr<WorkerLink>> spares() const;
  bool spareHasObjects() const { return rules_.spare == SpareWorker::kHasObjects; }
  std::string lostReason() const;
  bool lost() const noexcept;
  /// Waits until the workers have returned what was lent to them, or lose() was called, or the time
  /// is over.
  void awaitLoansBack(std::chrono::milliseconds patience);

  // For the control thread.

  /// Handles a message about a worker or a pool. A message about one that this process does not
  /// have any more has no effect. Throws ipc::ProtocolError if the message is invalid or of another
  /// kind, base::SystemCallError and std::bad_alloc; then the connection can't be continued.
  void handle(ipc::Frame& frame);
  /// Checks the work that hangs and that no thread waits for, see UnawaitedWatch.
  void lookAtUnawaitedWork();
  /// The connection has ended: reports it to the pools and ends all links. Kills the workers of a
  /// private supervisor and waits for their ends, a second at most. The first reason stays. May
  /// throw std::bad_alloc; then it has to be called again. Also for the owner's destructor, after
  /// the end of the control thread.
  void lose(const std::string& reason);
  void reportCalls();
  /// Each pool's own log gets the text, and the program's logger gets it once for all other pools.
  void logToPools(LogLevel level, const std::string& text);
  /// A line of a private supervisor's log, for the pool that it concerns, or for all.
  void logLine(const SupervisorLog::Line& line);

 private:
  void introduce(const ipc::IntroduceWorker& message, ipc::Frame& frame);
  void extendPath(WorkerLink& channel) const;
  bool anotherPreparesLocked(const WorkerLink& channel) const ISOPOOL_REQUIRES(mutex_);
  void defineObjectsLocked(WorkerLink& channel) ISOPOOL_REQUIRES(mutex_);
  void assign(const ipc::AssignWorker& message);
  void quarantined(const ipc::SlotQuarantined& message);
  void addSegment(const ipc::GrantOutputSegment& message, const ipc::Frame& frame);
  void removeSegment(const ipc::UnmapOutputSegment& message);
  void died(const ipc::WorkerDied& message);
  void closed(uint64_t epoch);
  void retire(uint64_t epoch);
  void callTimeOver(const ipc::CallTimeOver& message);
  void drain(const std::string& text);
  void pause(bool paused);
  std::shared_ptr<WorkerLink> channelOf(uint64_t epoch);
  std::shared_ptr<PoolEvents> poolOf(uint32_t pool);
  std::vector<std::shared_ptr<PoolEvents>> livingPools();

  const Rules rules_;
  const std::shared_ptr<ControlWriter> writer_;
  const std::shared_ptr<UnawaitedWatch> watch_;
  ipc::Welcome welcome_;

  mutable base::Mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<WorkerLink>> channels_ ISOPOOL_GUARDED_BY(mutex_);
  std::map<uint32_t, std::weak_ptr<PoolEvents>> pools_ ISOPOOL_GUARDED_BY(mutex_);
  std::map<uint64_t, ObjectDefinition> definitions_ ISOPOOL_GUARDED_BY(mutex_);
  base::Condition changed_;  // channels_ or lostReason_ changed
  /// Workers that were replaced on purpose.
  std::set<uint64_t> retired_ ISOPOOL_GUARDED_BY(mutex_);
  uint32_t nextPool_ ISOPOOL_GUARDED_BY(mutex_) = 1;
  std::string lostReason_ ISOPOOL_GUARDED_BY(mutex_);
  std::string drainText_ ISOPOOL_GUARDED_BY(mutex_);
  bool refusing_ ISOPOOL_GUARDED_BY(mutex_) = false;
  bool paused_ ISOPOOL_GUARDED_BY(mutex_) = false;
};

}  // namespace isopool::client
