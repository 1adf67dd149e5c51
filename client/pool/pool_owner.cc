// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/pool_owner.h"

#include <string>
#include <system_error>
#include <typeinfo>

#include "base/system_call.h"
#include "base/without_cancellation.h"
#include "client/control/connection_registry.h"
#include "client/control/pool_settings.h"
#include "client/program/process_fork.h"
#include "isopool/errors.h"
#include "isopool/noop_environment.h"
#include "isopool/path_environment.h"

namespace isopool::client {

namespace {

// isopool's own environments do nothing to a worker; a user's environment may do anything.
bool isUsersOwn(const Environment& environment) {
  const std::type_info& type = typeid(environment);
  return type != typeid(NoopEnvironment) && type != typeid(PathEnvironment);
}

// Managers whose environments have the same identity share a supervisor: the type for isopool's own
// environments, the very object for a user's.
std::string identityOf(const Environment& environment) {
  const std::string type = typeid(environment).name();
  if (!isUsersOwn(environment)) return type;
  return type + "@" + std::to_string(reinterpret_cast<uintptr_t>(&environment));
}

std::shared_ptr<Pool> makePool(const PoolOptions& options, std::shared_ptr<ModuleSources> modules,
                               const char* kind) {
  const base::WithoutCancellation complete;
  auto environment = options.environment;
  if (!environment) environment = std::make_shared<NoopEnvironment>();
  // A user's environment has to be applied to a spare before the spare may unpickle objects.
  const auto spare = isUsersOwn(*environment) ? SpareWorker::kEmpty : SpareWorker::kHasObjects;
  PoolSettings settings = settingsOf(options);
  const auto& folders = environment->getExtraPythonPaths();
  settings.pythonPaths.insert(settings.pythonPaths.begin(), folders.begin(), folders.end());
  const std::string& address = settings.address;
  try {
    const EventLog log(options.logger);
    settings.collectOutput = address.empty() && log.isSet();
    auto connection = address.empty()
                          ? privateConnection(settings, identityOf(*environment), spare, log)
                          : sharedConnection(settings, spare, log);
    return makeForThisProcess<Pool>(std::move(connection), settings, log, std::move(environment),
                                    std::move(modules), kind);
  } catch (const base::SystemCallError& error) {
    throw SupervisorLost((address.empty() ? "the private supervisor can't be used: "
                                          : "the supervisor " + address + " can't be used: ") +
                         error.what());
  } catch (const std::system_error& error) {
    throw SupervisorLost(std::string("can't start the thread that serves the supervisor: ") +
                         error.what());
  }
}

}  // namespace

PoolOwner::PoolOwner(const PoolOptions& options, std::shared_ptr<ModuleSources> modules,
                     const char* kind)
    : pool_(makePool(options, std::move(modules), kind)) {
  const base::WithoutCancellation complete;
  try {
    pool_->open();
  } catch (...) {
    pool_->close();
    throw;
  }
}

PoolOwner::~PoolOwner() { pool_->close(); }

}  // namespace isopool::client
