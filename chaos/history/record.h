// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

/// What a client program writes down of each of its calls, and of each manager that it makes, loads
/// with and closes, so that it is there whatever becomes of the program: one record before, one
/// after.
namespace chaos {

enum class Event : uint32_t {
  kInvoked = 1,
  kEnded,
};

enum class Outcome : uint32_t {
  kNone = 0,
  kValue,  ///< and every byte of it was right
  kWrong,  ///< a value with a wrong byte, or a failure that no page of docs/ knows
  kRaised,
  kWorkerLost,
  kNeverRan,  ///< WorkerLost or DeadlineExceeded that say so
  kOverdue,
  kRefused,      ///< ArenaFull, LimitExceeded
  kUnavailable,  ///< PoolUnavailable
  kSupervisorLost,
  kCancelled,
  kOutcomes,
};
const char* nameOf(Outcome outcome);

enum RecordFlag : uint32_t {
  kIdempotent = 1u << 0,   ///< may run twice
  kDeadly = 1u << 1,       ///< its worker is to die of it, or may be killed for its slowness
  kConstructor = 1u << 2,  ///< no call, but a manager is made
  kLoad = 1u << 3,         ///< no call, but a manager loads the package
  kClose = 1u << 4,        ///< no call, but a manager is destroyed
  kInterrupted = 1u << 5,  ///< a signal's handler ran meanwhile
};
constexpr uint32_t kOfManager = kConstructor | kLoad | kClose;

/// Written in one write() to a file that is only appended to.
struct Record {
  uint64_t nonce = 0;
  int64_t when = 0;  ///< nanoseconds of CLOCK_MONOTONIC, the same in all processes
  Event event = Event::kInvoked;
  Outcome outcome = Outcome::kNone;
  uint32_t flags = 0;
  int32_t deadline = 0;  ///< milliseconds; 0: none
  int32_t worker = 0;    ///< the process that died, if the outcome names one
  int32_t signal = 0;    ///< how, 0 if it exited
  std::array<char, 200> text{};
};
static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) == 240);

/// What a model appends to its effects file, in one write.
struct Effect {
  uint64_t nonce = 0;
  uint64_t process = 0;
};
static_assert(sizeof(Effect) == 16);

}  // namespace chaos
