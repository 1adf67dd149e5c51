// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/connection_registry.h"

#include <unistd.h>

#include <map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/process_environment.h"
#include "client/control/shared_supervisor.h"
#include "client/program/environment_setting.h"
#include "client/program/process_fork.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

// The connection of one environment.
struct Entry {
  base::Mutex mutex;  // held while a supervisor starts: managers of this environment wait for it
  std::weak_ptr<SupervisorConnection> connection ISOPOOL_GUARDED_BY(mutex);
};

// Call with the registry locked: no thread gets an entry then. So an entry that only the registry
// refers to is used by no thread, and its lock is free.
bool unused(const std::shared_ptr<Entry>& entry) {
  if (entry.use_count() != 1) return false;
  base::MutexLock lock(entry->mutex);
  return entry->connection.expired();
}

class Registry {
 public:
  static Registry& instance() {
    static PerProcess<Registry> registry;
    return registry.get();
  }

  std::shared_ptr<Entry> entryOf(const std::string& environment) {
    base::MutexLock lock(mutex_);
    std::erase_if(entries_, [](const auto& each) { return unused(each.second); });
    std::shared_ptr<Entry>& entry = entries_[environment];
    if (!entry) entry = std::make_shared<Entry>();
    return entry;
  }

 private:
  base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_ ISOPOOL_GUARDED_BY(mutex_);
};

// Two managers share a supervisor only if a worker of one could have been a worker of the other.
std::string keyOf(const PoolSettings& settings, const std::string& identity,
                  const std::vector<std::string>& environment) {
  std::string key = supervisorPath(settings.supervisorProgram) + '\0' + identity + '\0' +
                    settings.identity() + '\0';
  char folder[4096];
  key += ::getcwd(folder, sizeof folder) != nullptr ? folder : "";
  key += '\0';
  key += settings.collectOutput ? "collects output" : "";
  key += '\0';
  for (const std::string& variable : environment) key += variable + '\0';
  return key;
}

constexpr const char* kTooDeep =
    "no pool is started here: this code runs in a worker of a pool, which was started in a worker "
    "of a pool, and so on, to the depth that ISOPOOL_NESTED_POOLS allows. If that was not "
    "intended, a module starts a pool when it is imported: start it in a function, or under "
    "if __name__ == \"__main__\"";

// Afterwards `environment` has these variables, in place of those of the same names.
void replaceVariables(std::vector<std::string>& environment,
                      const std::map<std::string, std::string>& variables) {
  std::erase_if(environment, [&](const std::string& each) {
    return variables.contains(each.substr(0, each.find('=')));
  });
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
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

std::shared_ptr<SupervisorConnection> privateConnection(const PoolSettings& settings,
                                                        const std::string& identity,
                                                        SpareWorker spare, const EventLog& log) {
  armCrashPointOnce();
  // Read once: the supervisor gets what its key names, whatever other threads set meanwhile.
  std::vector<std::string> environment = base::processEnvironment();
  const auto entry = Registry::instance().entryOf(keyOf(settings, identity, environment));
  base::MutexLock lock(entry->mutex);
  auto connection = entry->connection.lock();
  if (usable(connection)) return connection;
  if (numberSetting("ISOPOOL_NESTED_POOLS") == 0) throw Error(kTooDeep);
  const std::string program = supervisorPath(settings.supervisorProgram);
  replaceVariables(environment, settings.variables);
  connection = SupervisorConnection::open(
      settings, spare,
      startPrivateSupervisor(program, settings.supervisorDefaults, std::move(environment),
                             settings.collectOutput),
      program, log);
  entry->connection = connection;
  return connection;
}

std::shared_ptr<SupervisorConnection> sharedConnection(const PoolSettings& settings,
                                                       SpareWorker spare, const EventLog& log,
                                                       const std::stop_token& stop) {
  armCrashPointOnce();
  SupervisorProcess process;
  process.control = connectToSupervisor(settings.address).release();
  return SupervisorConnection::open(settings, spare, std::move(process), settings.address, log,
                                    stop);
}

}  // namespace isopool::client
