// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

/// What a client program records of each call, and of each manager that it makes, loads with and
/// closes: one record before and one after. A record survives any death of the program.
namespace chaos {

enum class Event : uint32_t {
  kInvoked = 1,
  kEnded,
};

enum class Outcome : uint32_t {
  kNone = 0,
  kValue,  ///< a value, every byte of which was right
  kWrong,  ///< a value with a wrong byte, or a failure that docs/ does not describe
  kRaised,
  kWorkerLost,
  kNeverRan,  ///< WorkerLost or DeadlineExceeded with started() false
  kOverdue,
  kRefused,      ///< ArenaFull, LimitExceeded
  kUnavailable,  ///< PoolUnavailable
  kSupervisorLost,
  kSupervisorLostUnstarted,  ///< SupervisorLost with started() false
  kCancelled,
  kOutcomes,
};
const char* nameOf(Outcome outcome);

enum RecordFlag : uint32_t {
  kIdempotent = 1u << 0,   ///< may run twice
  kDeadly = 1u << 1,       ///< kills its worker, or may have it killed because it is slow
  kConstructor = 1u << 2,  ///< not a call: a manager is made
  kLoad = 1u << 3,         ///< not a call: a manager loads the package
  kClose = 1u << 4,        ///< not a call: a manager is destroyed
  kInterrupted = 1u << 5,  ///< a signal handler ran meanwhile
};
constexpr uint32_t kOfManager = kConstructor | kLoad | kClose;

/// Appended to the history file with one write().
struct Record {
  uint64_t nonce = 0;
  int64_t when = 0;  ///< nanoseconds of CLOCK_MONOTONIC, the same in all processes
  Event event = Event::kInvoked;
  Outcome outcome = Outcome::kNone;
  uint32_t flags = 0;
  int32_t deadline = 0;  ///< milliseconds; 0: none
  int32_t worker = 0;    ///< the process that died, if the outcome names one
  int32_t signal = 0;    ///< the signal that killed it; 0 if it exited
  std::array<char, 200> text{};
};
static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) == 240);

/// A record that a model appends to its effects file with one write().
struct Effect {
  uint64_t nonce = 0;
  uint64_t process = 0;
};
static_assert(sizeof(Effect) == 16);

}  // namespace chaos
