// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "supervisor/clients/model_totals.h"

namespace isopool::supervisor {

/// The limits at which the supervisor itself refuses a client's request. Other limits are kept by
/// workers and by the client's library: the supervisor learns of no refusal there.
enum class ClientLimit { kMemory, kDescriptors, kModels };

inline constexpr std::array<const char*, 3> kClientLimitNames{"memory", "descriptors", "models"};

/// Refusals by ClientLimit.
using Refusals = std::array<uint64_t, kClientLimitNames.size()>;

/// What clients have done: one client, or all of a class since the supervisor's start. The counts
/// of a class never fall: what a client did stays counted when it leaves.
struct ClassTotals {
  uint64_t connections = 0;     ///< programs that have attached
  uint64_t completedCalls = 0;  ///< also by workers that have died
  uint64_t overdueCalls = 0;
  Refusals refusals{};
  ModelTotals models;  ///< of calls that the clients of a class have reported

  /// Adds what `now` counts beyond `before`, and then sets `before` to `now`. A count that is
  /// smaller than before, which a worker may write, adds nothing.
  void advance(ClassTotals& before, const ClassTotals& now);
};

}  // namespace isopool::supervisor
