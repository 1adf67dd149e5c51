// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <vector>

namespace isopool::ipc {

/// The bounds of the times in ModelCalls, in microseconds.
inline constexpr std::array<uint64_t, 18> kCallTimeBounds{
    50,     100,     250,     500,     1'000,     2'500,     5'000,     10'000,     25'000,
    50'000, 100'000, 250'000, 500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000, 30'000'000};

/// Calls of one model, as the programs that made them saw them. Part of several messages.
struct ModelCalls {
  std::string model;      ///< ReplicatedObj::name()
  uint64_t answered = 0;  ///< calls that returned a value
  uint64_t failed = 0;    ///< calls that threw
  /// Of the answered calls, one more than kCallTimeBounds: how many took at most the bound of the
  /// same index, and longer than the one before; last those that took longer than all bounds.
  /// Times are exact to a sixteenth, and include the time in line and for loading.
  std::vector<uint64_t> times;
  uint64_t sumMicroseconds = 0;  ///< of these times
  MSGPACK_DEFINE_ARRAY(model, answered, failed, times, sumMicroseconds)
};

}  // namespace isopool::ipc
