// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "client/control/loaded_packages.h"
#include "client/control/supervisor_process.h"
#include "client/transport/call_limit.h"
#include "client/transport/control_writer.h"
#include "client/transport/input_arena.h"
#include "client/transport/object_definition.h"
#include "client/transport/unawaited_watch.h"
#include "client/transport/worker_link.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"

namespace isopool::client {

/// Receives the events of one pool of a connection. The control thread calls its members, which
/// must not block and must not throw anything but std::bad_alloc. It calls none of them while it
/// holds a lock. Events may still arrive after SupervisorConnection::closePool() has returned: the
/// control thread may have begun to report one.
class PoolEvents {
 public:
  virtual ~PoolEvents() = default;
  /// `channel` leads to the worker that serves `slot` from now on.
  virtual void workerAssigned(uint32_t slot, std::shared_ptr<WorkerLink> channel) = 0;
  /// The worker of `slot` has died, and its link is dead. Its replacement may have been assigned
  /// before. Not reported for a worker that was replaced on purpose.
  virtual void workerDied(uint32_t slot, const WorkerLost::Death& death) = 0;
  /// `slot` stays empty for a while; `text` has the reason.
  virtual void slotQuarantined(uint32_t slot, std::string text) = 0;
  /// The connection has ended, and the pool gets no further worker; `text` has the reason. The
  /// links of its workers end right after this. May be reported more than once.
  virtual void supervisorLost(std::string text) = 0;
  /// The supervisor is about to end: from here on the pool refuses new calls with this text. False
  /// if earlier calls are under way: another thread calls SupervisorConnection::drained() when they
  /// have ended.
  virtual bool drain(const std::string& text) = 0;
};

/// What a spare worker does before it takes a slot.
enum class SpareWorker : uint8_t {
  kHasObjects,  ///< it unpickles the objects that the other workers have
  kEmpty,       ///< nothing: the environment has to be applied to it first
};

/// This process's connection to one supervisor. All managers with the same environment share the
/// connection to a private supervisor; with a shared supervisor each manager is a client with a
/// connection of its own. Any thread. A control thread reads the supervisor's messages and
/// maintains the channels to the workers.
///
/// When the supervisor dies or sends an invalid message, all channels end and all pools are
/// notified; the connection does not recover. When the last owner releases the connection, a
/// private supervisor kills its workers and exits; a shared one forgets this client.
///
/// The last owner must not be the control thread, which the destructor joins. So nothing that the
/// control thread may destroy owns a connection. The destructor waits until a private supervisor
/// has ended, or until the workers of a shared one have returned what was lent to them, for some
/// seconds at most.
///
/// In a forked child the connection is the parent's: the destructor closes the child's copies of
/// the descriptors and has no other effect.
class SupervisorConnection final : public SegmentAudience {
 public:
  /// Greets the supervisor, waits until its Python runs, and starts the control thread. `process`:
  /// a private supervisor, or a shared one, of which it has the connection only. `pythonPaths`:
  /// folders for the workers' sys.path. `place`: the supervisor in messages, its program's path or
  /// its address. Throws what greetSupervisor() throws, Error (a setting is invalid), and
  /// std::system_error if there is no thread; then no private supervisor is left behind.
  static std::shared_ptr<SupervisorConnection> open(std::vector<std::string> pythonPaths,
                                                    SpareWorker spare, SupervisorProcess process,
                                                    const std::string& place);

  /// Asks the supervisor for a pool of so many workers, which are reported to `events`. Does not
  /// wait: the first event may come before this returns. Throws SupervisorLost if the connection
  /// has ended.
  base::PoolId openPool(uint32_t workers, std::weak_ptr<PoolEvents> events);
  /// Asks the supervisor to end the pool's workers. Does not wait for that. Throws std::bad_alloc;
  /// then the workers live as long as the connection.
  void closePool(base::PoolId pool);
  /// Call when the calls that were accepted before PoolEvents::drain() have ended: makes the
  /// channels refuse further requests and reports that to the supervisor.
  void drained() noexcept;

  /// See LoadedPackages. With a shared supervisor loadPackage() waits for its answer.
  void loadPackage(const std::shared_ptr<ArchiveFile>& package) {
    shared() ? packages_.loadShared(package) : packages_.load(package);
  }
  void unloadPackage(base::PackageId package) { packages_.unload(package); }

  /// An object that future spare workers make ahead of time, if this connection's spares do that
  /// (see SpareWorker). Present workers do not get it. Its package must stay loaded until
  /// removeDefinition().
  void addDefinition(const ObjectDefinition& definition);
  /// Asks all workers, spares too, to release the object. Does not wait. A worker whose ring is
  /// full is not asked and keeps the object.
  void removeDefinition(uint64_t object);

  /// A number that no other connection of this process has.
  uint64_t number() const { return number_; }
  /// For objects that may outlive the connection.
  const std::shared_ptr<ControlWriter>& writer() const { return writer_; }
  /// True if other programs use the supervisor's workers, too.
  bool shared() const { return welcome_.shared; }
  /// ISOPOOL_NO_KILL in this process's environment, read when the connection was made.
  bool noKill() const { return noKill_; }
  /// Null if the number of the program's calls in flight is not limited.
  const std::shared_ptr<CallLimit>& callLimit() const { return callLimit_; }
  /// Of the workers' Python, for example "3.11.2".
  const std::string& pythonVersion() const { return welcome_.pythonVersion; }
  /// Why the connection has ended; empty while it works.
  std::string lostReason() const;
  /// Throws SupervisorLost if the supervisor is dead or exiting. Call after a worker's death was
  /// seen: workers die with their supervisor, and the control thread may see its death later.
  /// `started`: the call in question had started.
  void checkSupervisorLives(bool started) const;
  /// Of the process that made the connection, see client::forkGeneration().
  uint32_t forkGeneration() const { return generation_; }

  /// Declares the segment to the supervisor, which passes it to the workers. Does not wait.
  void segmentAdded(base::SegmentId id, const base::Fd& object, size_t bytes) override;

 private:
  /// The deleter. In a forked child it only closes the child's copies of the descriptors.
  struct End {
    void operator()(SupervisorConnection* connection) const;
  };

  ~SupervisorConnection() override;
  SupervisorConnection(std::vector<std::string> pythonPaths, SpareWorker spare,
                       SupervisorProcess process);
  void begin(const std::string& place);
  void run();
  void loseOnceThereIsMemory(const char* what, const char* why);
  void handle(ipc::Frame& frame);
  void introduce(const ipc::IntroduceWorker& message, ipc::Frame& frame);
  void extendPath(WorkerLink& channel);
  void defineObjectsLocked(WorkerLink& channel) ISOPOOL_REQUIRES(mutex_);
  void assign(const ipc::AssignWorker& message);
  void died(const ipc::WorkerDied& message);
  void closed(uint64_t epoch);
  void retire(uint64_t epoch);
  void drain(const std::string& text);
  void lookAtUnawaitedWork();
  void awaitLoansBack();
  void lose(const std::string& reason);
  std::shared_ptr<WorkerLink> channelOf(uint64_t epoch);
  std::shared_ptr<PoolEvents> poolOf(uint32_t pool);

  const uint64_t number_;
  const uint32_t generation_;
  const bool noKill_;
  const std::chrono::milliseconds cleanupLimit_;
  const std::vector<std::string> pythonPaths_;
  const SpareWorker spare_;
  base::Fd lifeline_;
  const pid_t guardianGroup_;
  ipc::ControlSocket socket_;  // read by the control thread
  base::Fd wake_;              // an eventfd: the control thread is to end or to send messages
  const std::shared_ptr<ControlWriter> writer_;
  const std::shared_ptr<UnawaitedWatch> watch_;
  std::atomic<bool> stopping_{false};
  LoadedPackages packages_;
  ipc::Welcome welcome_;
  std::shared_ptr<CallLimit> callLimit_;
  base::Fd supervisor_;         // a pidfd
  bool hearsOfInputs_ = false;  // this is an audience of the input arena
  std::thread thread_;

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
};

}  // namespace isopool::client
