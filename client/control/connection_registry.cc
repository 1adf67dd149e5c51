// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/connection_registry.h"

#include <unistd.h>

#include <map>
#include <mutex>
#include <utility>

#include "client/control/shared_supervisor.h"
#include "client/program/process_fork.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

extern char** environ;

namespace isopool::client {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<SupervisorConnection>> connections;

  static Registry& instance() {
    static PerProcess<Registry> registry;
    return registry.get();
  }
};

// Two managers share a supervisor only if a worker of one could have been a worker of the other.
std::string environmentKey(const std::vector<std::string>& pythonPaths,
                           const std::string& identity) {
  std::string key = supervisorPath() + '\0' + identity + '\0';
  for (const std::string& path : pythonPaths) key += path + '\0';
  char folder[4096];
  key += ::getcwd(folder, sizeof folder) != nullptr ? folder : "";
  key += '\0';
  for (char** variable = environ; *variable != nullptr; ++variable) {
    key += *variable;
    key += '\0';
  }
  return key;
}

// Call before the program's first use of a supervisor.
void armCrashPointOnce() {
  static const bool known = ipc::armCrashPointFromEnvironment("ISOPOOL_CLIENT_CRASH_POINT");
  if (!known) throw Error("ISOPOOL_CLIENT_CRASH_POINT names no crash point");
}

bool usable(const std::shared_ptr<SupervisorConnection>& connection) {
  return connection && connection->forkGeneration() == client::forkGeneration() &&
         connection->lostReason().empty();
}

}  // namespace

std::shared_ptr<SupervisorConnection> privateConnection(const std::vector<std::string>& pythonPaths,
                                                        const std::string& identity,
                                                        SpareWorker spare) {
  armCrashPointOnce();
  const std::string key = environmentKey(pythonPaths, identity);
  Registry& registry = Registry::instance();
  // Held while a supervisor starts: a second manager with this environment waits for it.
  std::lock_guard lock(registry.mutex);
  std::erase_if(registry.connections, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = registry.connections[key];
  auto connection = entry.lock();
  if (usable(connection)) return connection;
  connection =
      SupervisorConnection::open(pythonPaths, spare, startPrivateSupervisor(), supervisorPath());
  entry = connection;
  return connection;
}

std::shared_ptr<SupervisorConnection> sharedConnection(const std::vector<std::string>& pythonPaths,
                                                       const std::string& address,
                                                       SpareWorker spare) {
  armCrashPointOnce();
  SupervisorProcess process;
  process.control = connectToSupervisor(address).release();
  return SupervisorConnection::open(pythonPaths, spare, std::move(process), address);
}

}  // namespace isopool::client
