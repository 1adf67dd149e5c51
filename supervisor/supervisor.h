// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log/line_rate.h"
#include "base/running_time.h"
#include "ipc/control/operator_messages.h"
#include "supervisor/clients/listener.h"
#include "supervisor/clients/private_client.h"
#include "supervisor/clients/shared_client.h"
#include "supervisor/config/options.h"
#include "supervisor/pool/memory_stock.h"
#include "supervisor/pool/services.h"
#include "supervisor/pool/worker_group.h"
#include "supervisor/pool/zygote.h"
#include "supervisor/processes/output_quota.h"
#include "supervisor/processes/worker_folders.h"

namespace isopool::supervisor {

/// What a reload of the settings led to.
struct Reload {
  std::optional<Options> options;        ///< nothing: the settings are wrong, and none has changed
  std::string failure;                   ///< why; else empty
  std::vector<std::string> needRestart;  ///< as Settings::Changes::needRestart
};

/// Callbacks by which main reports a shared supervisor's state to the service manager. All are
/// optional, and called on the loop's thread.
struct SupervisorEvents {
  /// It ends because it can't serve, which is logged.
  std::function<void(const std::string& reason)> failed;
  /// The first zygote is ready, and the socket is open; of a successor, each group has a worker.
  std::function<void()> serving;
  std::function<void()> draining;  ///< SIGTERM or SIGINT was received
  std::function<void()> alive;     ///< called every aliveEvery
  base::Milliseconds aliveEvery{0};
  /// SIGHUP was received: reads the settings again, and logs the outcome.
  std::function<Reload()> reload;
  /// Returns the settings in force, for operators of a shared supervisor.
  std::function<std::vector<ipc::ReportedSetting>()> settings;
  /// An operator wants another supervisor to take over: starts one, which gets the socket and its
  /// lock. Supervisor::replaced() or successorFailed() follows.
  std::function<void(const ListeningSocket&)> startSuccessor;
};

/// The interfaces that a supervisor runs on: implemented by the kernel, or by a simulation.
struct Platform {
  base::EventLoop& loop;
  Processes& processes;
  OutputQuota& outputQuota;
  uint32_t seed;  ///< of the random jitter of workers' lives
};

/// Owns one zygote, the clients, and the groups of workers. A private pool's client has its own
/// group; clients of a shared supervisor share one group, or one per class with dedicated workers.
///
/// Made by main. Not thread-safe: all of it runs on the loop's thread. `platform` must outlive it;
/// its owner removes the loop's handlers before it destroys this object.
///
/// When run() returns, the zygote and a private pool's workers are dead or dying. The workers of a
/// shared supervisor end when their lifelines close: with this object, or with this process. If
/// this process dies in any other way, the same happens.
class Supervisor {
 public:
  /// Starts no process yet. `limits`: what the zygote gets back, see detach().
  Supervisor(const Platform& platform, const Options& options, InheritedLimits limits,
             SupervisorEvents events);

  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Serves the client of a private pool over its control socket. run() returns when it leaves.
  /// Call either this or listen(), once, before run().
  void addClient(base::Fd socket);
  /// From when on a shared supervisor accepts connections.
  enum class Accept {
    kAtOnce,
    /// It is a successor: its predecessor accepts them until each group has a worker.
    kWhenServing
  };
  /// Serves all programs that connect and have permission to. Requests the workers at once; they
  /// are forked when the zygote is ready.
  void listen(ListeningSocket socket, Accept when = Accept::kAtOnce);
  /// Call when a successor accepts connections at this supervisor's socket: drains, but lets each
  /// client that has no call in flight go at once, and ends when none is left.
  void replaced();
  /// Call when a successor has ended before it accepted connections: this one goes on.
  void successorFailed(const std::string& text);

  /// Runs the loop until the end. Returns the exit code: 0 if the client of a private pool has
  /// left, or after SIGTERM or SIGINT; 1 if the zygote could not start or that client failed. A
  /// shared supervisor first waits for calls in flight, up to Options::drainTimeout; a second
  /// signal ends that wait. Throws std::bad_alloc after a shortage of memory
  /// (processes/memory_shortage.h); then the process must end.
  int run();
  /// Logs what workers have written so far, if their output is collected. After run().
  void logOutput();

 private:
  void zygoteReady();
  /// Begins to serve, unless it does or a successor's group has no worker yet.
  void serve();
  void cannotServe(const std::string& text);
  void makeFolders();
  void zygoteGivenUp(const std::string& text);
  void accept(base::Fd socket);
  void privateClientOver(const std::string& reason);
  void clientOver(ClientId id, const std::string& reason);
  WorkerGroup& groupFor(const ClientClass* its);
  ipc::Report report();
  ipc::ActionDone act(const SharedClient& operating, const ipc::RequestAction& request);
  ipc::ActionDone carryOut(const ipc::RequestAction& request, const std::string& by);
  ipc::ActionDone evict(const ipc::RequestAction& request, const std::string& by);
  /// Why an action is refused while a successor starts.
  std::string successorStarts() const;
  ipc::ActionDone recycleWorker(uint64_t processId, const std::string& by);
  ipc::ActionDone recycleSlot(const std::string& group, uint64_t slot, const std::string& by);
  ipc::ActionDone recycleAll(const std::string& by);
  void reportClasses(ipc::Report& report);
  size_t descriptorsOfClients() const;
  ipc::ActionDone pause(uint64_t number, base::Milliseconds time);
  ipc::ActionDone resume(uint64_t number);
  ipc::ActionDone drainAsAsked();
  ipc::ActionDone restart();
  SharedClient* programWith(uint64_t number);
  std::string whyNoMorePrograms(uid_t user, const std::string& program);
  std::string banOf(uid_t user, const std::string& program);
  std::string limitOfPrograms(uid_t user) const;
  std::string lackOfDescriptors() const;
  /// Files that this process may still open.
  uint64_t freeDescriptors() const;
  std::string limitOfConnections(const Peer& peer) const;
  void startAccepting();
  bool waitsForWorkers() const;
  void childReaped();
  void sweepSoon();
  void sweepOrphans();
  std::vector<pid_t> ownChildren() const;
  void signalled(int signal);
  void passStateChangesOn();
  void reload();
  void makeGroup(const std::string& name, uint32_t workers);
  void resizeGroups();
  void shutDown(const std::string& why);
  void drain(const std::string& text);
  void awaitDrained();
  void releaseDrained();
  void sayAlive();
  void refuseAll(const std::string& text);
  void stop(int exitCode);

  Options options_;
  std::optional<WorkerFolders> folders_;
  const SupervisorEvents events_;
  base::EventLoop& loop_;
  Processes& processes_;
  MemoryStock stock_;
  Zygote zygote_;
  Services services_;
  std::optional<ListeningSocket> socket_;  ///< of a successor until it accepts connections
  std::optional<Listener> listener_;
  /// "shared", and one for each class that has workers of its own.
  std::map<std::string, std::unique_ptr<WorkerGroup>> groups_;
  std::unique_ptr<PrivateClient> privateClient_;  ///< null in a shared supervisor
  std::map<ClientId, std::unique_ptr<SharedClient>> clients_;
  ClientId lastClient_;
  uint64_t refusedConnections_ = 0;
  base::LineRate refusalRate_;
  uint64_t refusedPrograms_ = 0;  ///< of these: because of max_clients or max_clients_per_user
  /// By the name of the class, empty for clients of no class.
  std::map<std::string, ClassTotals> classTotals_;
  const base::TimePoint startedAt_;
  base::Timer drained_;
  base::RunningTime drainTime_;
  base::Timer alive_;
  /// Programs of this user with this name may not attach.
  struct Ban {
    uint32_t userId = 0;
    std::string program;
    base::TimePoint until;
    bool reported = false;  ///< the log has that one was refused
  };
  std::vector<Ban> bans_;
  static constexpr const char* kStarting = "starting";
  std::string successor_;  ///< as Report::successor: kStarting, or why the last one did not serve
  std::string reloadFailure_;             ///< as Report::reloadFailure
  std::vector<std::string> needRestart_;  ///< as Report::needRestart
  bool served_ = false;
  bool askedToEnd_ = false;
  bool replaced_ = false;  ///< a successor has the address
  bool draining_ = false;
  bool ending_ = false;    ///< the supervisor disconnects all clients
  bool evicting_ = false;  ///< the supervisor disconnects a client because an operator wants that
  bool quietly_ = false;   ///< the supervisor refuses a client for a reason that the log has
  bool sweepWanted_ = false;
  bool killOrphans_ = false;
  int exitCode_ = 0;
};

}  // namespace isopool::supervisor
