// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/pool_owner.h"

#include <string>
#include <system_error>
#include <typeinfo>

#include "base/system_call.h"
#include "client/control/connection_registry.h"
#include "client/control/shared_supervisor.h"
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

std::shared_ptr<Pool> makePool(std::shared_ptr<Environment> environment,
                               std::shared_ptr<ModuleSources> modules, const char* kind,
                               std::string address) {
  if (!environment) environment = std::make_shared<NoopEnvironment>();
  // A user's environment has to be applied to a spare before the spare may unpickle objects.
  const auto spare = isUsersOwn(*environment) ? SpareWorker::kEmpty : SpareWorker::kHasObjects;
  if (address.empty()) address = sharedSupervisorAddress();
  const auto folders = environment->getExtraPythonPaths();
  try {
    auto connection = address.empty() ? privateConnection(folders, identityOf(*environment), spare)
                                      : sharedConnection(folders, address, spare);
    return makeForThisProcess<Pool>(std::move(connection), std::move(environment),
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

PoolOwner::PoolOwner(uint32_t workers, std::shared_ptr<Environment> environment,
                     std::shared_ptr<ModuleSources> modules, const char* kind,
                     const std::string& address)
    : pool_(makePool(std::move(environment), std::move(modules), kind, address)) {
  try {
    pool_->open(workers);
  } catch (...) {
    pool_->close();
    throw;
  }
}

PoolOwner::~PoolOwner() { pool_->close(); }

}  // namespace isopool::client
