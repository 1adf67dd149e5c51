// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/pool/pool.h"

namespace isopool::client {

/// Owns a pool: the constructor starts its workers, the destructor ends them. Part of a manager, or
/// of an Interpreter with a worker of its own. Others may share ownership of the pool; after the
/// destructor they get Error from it. In a forked child the destructor does nothing.
class PoolOwner {
 public:
  /// Returns when all workers serve. `kind`: what users call the owner, for messages. Throws Error
  /// for invalid options, SupervisorLost, PoolUnavailable, DeadlineExceeded if the workers take too
  /// long, and what the environment throws.
  PoolOwner(const PoolOptions& options, std::shared_ptr<ModuleSources> modules, const char* kind);
  /// See Pool::close().
  ~PoolOwner();
  PoolOwner(const PoolOwner&) = delete;
  PoolOwner& operator=(const PoolOwner&) = delete;

  const std::shared_ptr<Pool>& pool() const { return pool_; }

 private:
  const std::shared_ptr<Pool> pool_;
};

}  // namespace isopool::client
