// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/pool.h"

namespace isopool::client {

/// A pool from its workers' start to their end: what a manager or an Interpreter of its own has.
class PoolOwner {
 public:
  /// Returns when all workers serve. `kind` is what users call the owner. Throws SupervisorLost,
  /// PoolUnavailable, and what the environment throws.
  /// `address`: of a shared supervisor; empty: the one that ISOPOOL_SOCKET names, or a private one.
  PoolOwner(uint32_t workers, std::shared_ptr<Environment> environment,
            std::shared_ptr<ModuleSources> modules, const char* kind,
            const std::string& address = {});
  ~PoolOwner();
  PoolOwner(const PoolOwner&) = delete;
  PoolOwner& operator=(const PoolOwner&) = delete;

  const std::shared_ptr<Pool>& pool() const { return pool_; }

 private:
  const std::shared_ptr<Pool> pool_;
};

}  // namespace isopool::client
