// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/clients/client.h"
#include "supervisor/clients/listener.h"
#include "supervisor/config/options.h"
#include "supervisor/pool/memory_stock.h"
#include "supervisor/pool/services.h"
#include "supervisor/pool/worker_group.h"
#include "supervisor/pool/zygote.h"
#include "supervisor/processes/worker_folders.h"

namespace isopool::supervisor {

/// What main does for a shared supervisor. All optional.
struct SupervisorEvents {
  std::function<void()> serving;   ///< workers can be had, and the socket is open
  std::function<void()> draining;  ///< SIGTERM came
  std::function<void()> alive;     ///< every aliveEvery
  base::Milliseconds aliveEvery{0};
  /// SIGHUP came: the options from now on; nothing if they are wrong, and that was said.
  std::function<std::optional<Options>()> reload;
};

/// What a supervisor runs on: the kernel, or a simulation.
struct Platform {
  base::EventLoop& loop;
  Processes& processes;
  uint32_t seed;  ///< of chance: the jitter of lives
};

/// The parent of all: one zygote, the clients, and groups of workers; a private pool's client has a
/// group of its own, those of a shared supervisor share one, or one per class with dedicated
/// workers. Made by main, run on one thread. Everything that it started is dead or dying when run()
/// returns. Its owner forgets the loop's handlers before it destroys this.
class Supervisor {
 public:
  Supervisor(const Platform& platform, const Options& options, InheritedLimits limits,
             SupervisorEvents events);

  /// Serves a client over its control socket, for a private pool; when it is gone, run() ends.
  void addClient(base::Fd socket);
  /// Serves whoever connects and may.
  void listen(ListeningSocket socket);

  /// Returns the exit code: 0 if the client left or SIGTERM came, 1 if nobody could be served.
  int run();

 private:
  void zygoteReady();
  void makeFolders();
  void zygoteGivenUp(const std::string& text);
  void accept(base::Fd socket);
  void clientOver(ClientId id, const std::string& reason);
  WorkerGroup& groupFor(const ClientClass* its);
  ipc::Report report();
  size_t descriptorsOfClients() const;
  std::string whyNoMorePrograms() const;
  void childReaped();
  void sweepSoon();
  void sweepOrphans();
  std::vector<pid_t> ownChildren() const;
  void signalled(int signal);
  void reload();
  void drain();
  void awaitDrained(base::TimePoint until);
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
  std::optional<Listener> listener_;
  /// "shared", and one for each class that has workers of its own.
  std::map<std::string, std::unique_ptr<WorkerGroup>> groups_;
  std::map<ClientId, std::unique_ptr<Client>> clients_;
  ClientId lastClient_;
  uint64_t refusedConnections_ = 0;
  const base::TimePoint startedAt_;
  base::Timer drained_;
  base::Timer alive_;
  bool served_ = false;
  bool draining_ = false;
  bool ending_ = false;  ///< clients that go now are sent away
  bool sweepWanted_ = false;
  bool killOrphans_ = false;
  int exitCode_ = 0;
};

}  // namespace isopool::supervisor
