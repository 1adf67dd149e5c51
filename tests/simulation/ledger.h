// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/simulation/world.h"

namespace isopool::simulation {

/// How a call ended for its caller.
enum class Ending { kAnswered, kWorkerLost, kNotStarted, kOverdue, kRefused };

/// Checks what must hold for every call. Records, independently of client and worker, which calls
/// ran and how each ended for its caller.
class Ledger {
 public:
  explicit Ledger(World& world) : world_(world) {}

  void made(uint64_t call, bool idempotent);
  /// A worker begins to run the call.
  void ran(uint64_t call);
  void ended(uint64_t call, Ending ending);
  /// The caller is dead: the call has no outcome.
  void forgotten(uint64_t call);

  size_t pending() const { return pending_; }
  uint64_t made() const { return made_; }
  uint64_t endings(Ending ending) const;
  std::string firstPending() const;

 private:
  struct Entry {
    bool idempotent = false;
    uint32_t runs = 0;
    std::optional<Ending> ending;
  };

  World& world_;
  std::map<uint64_t, Entry> calls_;
  std::map<Ending, uint64_t> endings_;
  uint64_t made_ = 0;
  size_t pending_ = 0;
};

}  // namespace isopool::simulation
