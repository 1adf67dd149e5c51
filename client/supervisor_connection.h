// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "client/call_limit.h"
#include "client/control_writer.h"
#include "client/input_arena.h"
#include "client/loaded_packages.h"
#include "client/object_definition.h"
#include "client/supervisor_process.h"
#include "client/unawaited_watch.h"
#include "client/worker_link.h"
#include "ipc/control/frame.h"

namespace isopool::client {

/// What a pool of this connection is told, by the control thread. Must not block.
class PoolEvents {
 public:
  virtual ~PoolEvents() = default;
  virtual void workerAssigned(uint32_t slot, std::shared_ptr<WorkerLink> channel) = 0;
  /// Its replacement may have been assigned before.
  virtual void workerDied(uint32_t slot, const WorkerLost::Death& death) = 0;
  virtual void slotQuarantined(uint32_t slot, std::string text) = 0;
  virtual void supervisorLost(std::string text) = 0;
  /// The supervisor is about to end: calls that are made from here on are refused with this text.
  /// False if calls that were made before are under way: SupervisorConnection::drained() is called,
  /// by another thread, when they have ended.
  virtual bool drain(const std::string& text) = 0;
};

/// What a spare worker does before it is needed.
enum class SpareWorker : uint8_t {
  kHasObjects,  ///< it unpickles the objects that the others have
  kEmpty,       ///< nothing: something is to be done to it first
};

/// This process's connection to one supervisor: a private one, shared by all managers with the same
/// environment, or a shared one, where each manager is a client with a connection of its own.
/// A thread of its own reads what the supervisor tells and keeps the channels; writers send from
/// any thread. Ends with its last owner: the supervisor then kills its workers and exits.
///
/// The last owner must let go on another thread than the control thread, so nothing that the
/// control thread may destroy owns a connection.
class SupervisorConnection final : public SegmentAudience {
 public:
  /// The connection for workers with these folders on sys.path, in the present environment (working
  /// folder and environment variables) and for the environment object `identity`. Starts a
  /// supervisor if there is none yet and waits until its Python is up. Throws SupervisorLost with
  /// the reason.
  static std::shared_ptr<SupervisorConnection> obtain(const std::vector<std::string>& pythonPaths,
                                                      const std::string& identity,
                                                      SpareWorker spare);
  /// A connection of its own to the shared supervisor at `address`. Throws SupervisorLost.
  static std::shared_ptr<SupervisorConnection> attach(const std::vector<std::string>& pythonPaths,
                                                      const std::string& address,
                                                      SpareWorker spare);

  base::PoolId openPool(uint32_t workers, std::weak_ptr<PoolEvents> events);
  void closePool(base::PoolId pool);
  /// The pool's calls have ended that were made before the supervisor was told to end: tells it,
  /// and has the workers' channels take nothing more.
  void drained() noexcept;

  /// As LoadedPackages says.
  void loadPackage(const std::shared_ptr<ArchiveFile>& package) {
    shared() ? packages_.loadShared(package) : packages_.load(package);
  }
  void unloadPackage(base::PackageId package) { packages_.unload(package); }

  /// Objects that a spare worker makes ahead of time.
  void addDefinition(const ObjectDefinition& definition);
  /// All workers forget the object, spares too.
  void removeDefinition(uint64_t object);

  /// No other connection of this process has it.
  uint64_t number() const { return number_; }
  const std::shared_ptr<ControlWriter>& writer() const { return writer_; }
  /// Other programs use the supervisor's workers, too.
  bool shared() const { return welcome_.shared; }
  /// Of the environment that the supervisor was started in: ISOPOOL_NO_KILL.
  bool noKill() const { return noKill_; }
  /// Null if the program may have any number of calls in flight.
  const std::shared_ptr<CallLimit>& callLimit() const { return callLimit_; }
  const std::string& pythonVersion() const { return welcome_.pythonVersion; }
  /// Not empty once the supervisor is gone: why nothing works any more.
  std::string lostReason() const;
  /// Throws SupervisorLost if the supervisor is dead or dying. For whoever has just seen a worker
  /// die: workers die with their supervisor, and the control thread may learn of it later.
  /// `started`: the call of which is asked had.
  void checkSupervisorLives(bool started) const;
  uint32_t forkGeneration() const { return generation_; }

  void segmentAdded(base::SegmentId id, const base::Fd& object, size_t bytes) override;

 private:
  /// In a process that was forked from the one that made it a connection only lets go of
  /// descriptors.
  struct End {
    void operator()(SupervisorConnection* connection) const;
  };

  ~SupervisorConnection() override;
  SupervisorConnection(std::vector<std::string> pythonPaths, SpareWorker spare,
                       SupervisorProcess process, std::string place);
  void begin();
  void greet();
  void run();
  void loseOnceThereIsMemory(const char* what, const char* why);
  void handle(ipc::Frame& frame);
  void introduce(const ipc::IntroduceWorker& message, ipc::Frame& frame);
  void extendPath(WorkerLink& channel);
  void defineObjectsLocked(WorkerLink& channel);
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
  const std::string place_;  ///< for messages: where the supervisor is, or its program
  base::Fd lifeline_;
  const pid_t guardianGroup_;
  ipc::ControlSocket socket_;  // read by the control thread
  base::Fd wake_;              // an eventfd: the control thread is to end, or to send what waits
  const std::shared_ptr<ControlWriter> writer_;
  const std::shared_ptr<UnawaitedWatch> watch_;
  std::atomic<bool> stopping_{false};
  LoadedPackages packages_;
  ipc::Welcome welcome_;
  std::shared_ptr<CallLimit> callLimit_;
  base::Fd supervisor_;         // its pidfd
  bool hearsOfInputs_ = false;  // it is an audience of the input arena
  std::thread thread_;

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<WorkerLink>> channels_;
  std::map<uint32_t, std::weak_ptr<PoolEvents>> pools_;
  std::map<uint64_t, ObjectDefinition> definitions_;
  std::condition_variable changed_;  // channels_ or lostReason_ have
  std::set<uint64_t> retired_;       // workers that were replaced on purpose
  uint32_t nextPool_ = 1;
  std::string lostReason_;
  std::string drainText_;  // guarded by mutex_, as refusing_ is
  bool refusing_ = false;
};

}  // namespace isopool::client
