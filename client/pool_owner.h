// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>

#include "client/pool.h"

namespace isopool::client {

/// A pool from its workers' start to their end: what a manager or an Interpreter of its own has.
class PoolOwner {
 public:
  /// Returns when all workers serve. `kind` is what users call the owner. Throws SupervisorLost,
  /// PoolUnavailable, and what the environment throws.
  PoolOwner(uint32_t workers, std::shared_ptr<Environment> environment,
            std::shared_ptr<ModuleSources> modules, const char* kind);
  ~PoolOwner();
  PoolOwner(const PoolOwner&) = delete;
  PoolOwner& operator=(const PoolOwner&) = delete;

  const std::shared_ptr<Pool>& pool() const { return pool_; }

 private:
  const std::shared_ptr<Pool> pool_;
};

}  // namespace isopool::client
