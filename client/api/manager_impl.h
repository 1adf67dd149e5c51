// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/pool/pool_owner.h"
#include "isopool/interpreter.h"

namespace isopool {

/// The implementation of an InterpreterManager: owns the pool, which ends with it, and the
/// Interpreters to which users may keep pointers. The destructor keeps these alive for a while.
class ManagerImpl {
 public:
  ManagerImpl(uint32_t workers, std::shared_ptr<Environment> environment,
              const std::string& address);
  ~ManagerImpl();
  ManagerImpl(const ManagerImpl&) = delete;
  ManagerImpl& operator=(const ManagerImpl&) = delete;

  const std::shared_ptr<client::ModuleSources> modules;
  const client::PoolOwner owner;
  const std::shared_ptr<client::Pool> pool;
  std::vector<Interpreter> interpreters;
};

}  // namespace isopool
