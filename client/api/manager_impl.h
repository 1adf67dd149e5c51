// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/ArrayRef.h>

#include <memory>
#include <string>
#include <vector>

#include "client/pool/pool_owner.h"
#include "isopool/interpreter.h"

namespace isopool {

/// The implementation of an InterpreterManager: owns the pool, which ends with it, and the
/// Interpreters to which users may keep pointers. Any thread may use it until the destructor runs.
class ManagerImpl {
 public:
  /// Waits for the workers and throws, as PoolOwner's constructor.
  explicit ManagerImpl(const PoolOptions& options);
  /// The Interpreters of the last 64 managers stay valid objects, whose use throws Error. Then ends
  /// the pool, see Pool::close().
  ~ManagerImpl();
  ManagerImpl(const ManagerImpl&) = delete;
  ManagerImpl& operator=(const ManagerImpl&) = delete;

  const std::shared_ptr<client::ModuleSources> modules;
  const client::PoolOwner owner;
  const std::shared_ptr<client::Pool> pool;
  std::vector<Interpreter> interpreters;      ///< one per slot, in slot order; constant
  const at::ArrayRef<Interpreter> instances;  ///< of these
};

}  // namespace isopool
