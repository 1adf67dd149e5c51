// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/ids.h"
#include "client/control/connected_workers.h"
#include "client/control/loaded_packages.h"
#include "client/control/pool_events.h"
#include "client/control/pool_settings.h"
#include "client/control/supervisor_log.h"
#include "client/control/supervisor_process.h"
#include "client/transport/control_writer.h"
#include "client/transport/input_arena.h"
#include "client/transport/object_definition.h"
#include "client/transport/unawaited_watch.h"
#include "client/transport/unread_messages.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"

namespace isopool::client {

/// This process's connection to one supervisor. All managers with the same environment share the
/// connection to a private supervisor; with a shared supervisor each manager is a client with a
/// connection of its own. Any thread. A control thread reads the supervisor's messages: most of
/// them concern its workers, see ConnectedWorkers.
///
/// When the supervisor dies or sends an invalid message, all channels end and all pools are
/// notified; the connection does not recover, its pool may make another one. When the last owner
/// releases the connection, a private supervisor kills its workers and exits; a shared one forgets
/// this client.
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
  /// a private supervisor, or a shared one, of which it has the connection only. `place`: the
  /// supervisor in messages, its program's path or its address. `log`: gets lines of a private
  /// supervisor's log while there is no pool. `stop` ends the wait. Throws what
  /// greetSupervisor() throws, and std::system_error if there is no thread; then no private
  /// supervisor is left behind.
  static std::shared_ptr<SupervisorConnection> open(const PoolSettings& settings, SpareWorker spare,
                                                    SupervisorProcess process,
                                                    const std::string& place, EventLog log,
                                                    const std::stop_token& stop = {});

  /// Asks the supervisor for a pool of so many workers, which are reported to `events`. Does not
  /// wait: the first event may come before this returns. Throws SupervisorLost if the connection
  /// has ended.
  base::PoolId openPool(uint32_t workers, std::weak_ptr<PoolEvents> events) {
    return workers_.openPool(workers, std::move(events));
  }
  /// Asks the supervisor to end the pool's workers. Does not wait for that. Throws std::bad_alloc;
  /// then the workers live as long as the connection.
  void closePool(base::PoolId pool) { workers_.closePool(pool); }
  /// True if `former` led to the supervisor of this connection, too.
  bool sameSupervisorAs(const SupervisorConnection& former) const;
  /// Call when the calls that were accepted before PoolEvents::drain() have ended: makes the
  /// channels refuse further requests and reports that to the supervisor.
  void drained() noexcept { workers_.drained(); }

  /// See LoadedPackages. With a shared supervisor loadPackage() waits for its answer.
  void loadPackage(const std::shared_ptr<ArchiveFile>& package) {
    shared() ? packages_.loadShared(package) : packages_.load(package);
  }
  void unloadPackage(base::PackageId package) { packages_.unload(package); }

  /// An object that future spare workers make ahead of time, if this connection's spares do that
  /// (see SpareWorker). Present workers do not get it. Its package must stay loaded until
  /// removeDefinition().
  void addDefinition(const ObjectDefinition& definition) { workers_.addDefinition(definition); }
  /// Asks all workers, spares too, to release the object. Does not wait. A worker whose ring is
  /// full is not asked and keeps the object.
  void removeDefinition(uint64_t object) { workers_.removeDefinition(object); }

  /// A number that no other connection of this process has.
  uint64_t number() const { return number_; }
  /// For objects that may outlive the connection.
  const std::shared_ptr<ControlWriter>& writer() const { return writer_; }
  /// True if other programs use the supervisor's workers, too.
  bool shared() const { return welcome_.shared; }
  /// The version that both sides support.
  uint32_t protocolVersion() const { return welcome_.protocolVersion; }
  /// The supervisor's settings when the connection was made, as it reported them.
  const std::vector<ipc::SettingInForce>& supervisorSettings() const { return welcome_.settings; }
  /// True if spares make the pools' objects ahead of time, see SpareWorker.
  bool spareHasObjects() const { return workers_.spareHasObjects(); }
  /// The living workers that serve no slot now.
  std::vector<std::shared_ptr<WorkerLink>> spares() const { return workers_.spares(); }
  /// The most calls that the program may have in flight; 0: without limit.
  uint32_t mostCalls() const { return welcome_.callLimit; }
  /// Of the workers' Python, for example "3.11.2".
  const std::string& pythonVersion() const { return welcome_.pythonVersion; }
  /// Why the connection has ended; empty while it works.
  std::string lostReason() const { return workers_.lostReason(); }
  bool lost() const noexcept { return workers_.lost(); }
  /// Throws SupervisorLost if the supervisor is dead or exiting. Call after a worker's death was
  /// seen: workers die with their supervisor, and the control thread may see its death later.
  /// `started`: the call in question had started.
  void checkSupervisorLives(bool started) const;
  /// Of the process that made the connection, see client::forkGeneration().
  uint32_t forkGeneration() const { return generation_; }

  // Of the input arena's audience; none of them waits.

  /// Declares the segment to the supervisor, which passes it to the workers.
  void segmentAdded(base::SegmentId id, const base::Fd& object, size_t bytes) override;
  /// Asks the supervisor to make the workers unmap it. An older supervisor can't: then the number
  /// stays taken as long as the connection lasts.
  void segmentRetired(base::SegmentId id) override;
  uint64_t memoryLimit() const override { return welcome_.memoryLimit; }
  void trimIsDue() noexcept override;
  void trimIsWanted() override;

 private:
  /// The deleter. In a forked child it only closes the child's copies of the descriptors.
  struct End {
    void operator()(SupervisorConnection* connection) const;
  };

  ~SupervisorConnection() override;
  SupervisorConnection(const PoolSettings& settings, SpareWorker spare, SupervisorProcess process,
                       EventLog log);
  void begin(const std::string& place, const std::stop_token& stop);
  void run();
  void loseOnceThereIsMemory(const char* what, const char* why);
  void handle(ipc::Frame& frame);
  void reportCalls();
  void readLog();
  void lose(const std::string& reason);
  std::string goneText() const;
  const char* remedy() const;

  const uint64_t number_;
  const uint32_t generation_;
  const PoolSettings settings_;  // of the pool that made it; equal for all in what is used here
  base::Fd lifeline_;
  const pid_t guardianGroup_;
  SupervisorLog log_;
  ipc::ControlSocket socket_;  // read by the control thread
  base::Fd wake_;              // an eventfd: the control thread is to end or to send messages
  const std::shared_ptr<ControlWriter> writer_;
  const std::shared_ptr<UnawaitedWatch> watch_;
  UnreadMessages unread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> trimIsDue_{false};  // the control thread has to trim the input arena
  LoadedPackages packages_;
  ConnectedWorkers workers_;
  ipc::Welcome welcome_;
  base::Fd supervisor_;         // a pidfd
  bool hearsOfInputs_ = false;  // this is an audience of the input arena
  std::thread thread_;
};

}  // namespace isopool::client
