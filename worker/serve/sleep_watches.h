// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "ipc/channel/futex.h"

namespace isopool::worker {

/// Sleeps on any number of words. The kernel lets one thread sleep on at most kMaxFutexWatches
/// words: further threads (deputies) sleep on the rest and wake the sleeper. They are started when
/// they are first needed, and never end.
///
/// For one thread. Words may be unmapped once sleep() has returned. The threads do not exist in a
/// forked child, which must not use this object.
class SleepWatches {
 public:
  SleepWatches() = default;
  SleepWatches(const SleepWatches&) = delete;
  SleepWatches& operator=(const SleepWatches&) = delete;

  void clear() { watches_.clear(); }
  void add(const ipc::SharedWord<uint32_t>* word, uint32_t expected) {
    watches_.push_back({word, expected});
  }
  /// Sleeps until one of the words no longer has its expected value, or `timeout` is over (nullopt:
  /// no time-out). May return spuriously.
  void sleep(std::optional<std::chrono::nanoseconds> timeout = std::nullopt);

 private:
  // A thread that sleeps on up to kMaxFutexWatches - 1 words for the sleeper. Never destroyed.
  struct Deputy {
    base::Mutex mutex;
    std::vector<ipc::FutexWatch> watches ISOPOOL_GUARDED_BY(mutex);
    ipc::SharedWord<uint32_t> generation{0};  // incremented with each new set of words
  };
  static void deputise(Deputy& deputy, ipc::SharedWord<uint32_t>& woken);

  std::vector<ipc::FutexWatch> watches_;
  std::vector<Deputy*> deputies_;
  ipc::SharedWord<uint32_t>* woken_ = nullptr;  // incremented by a deputy that saw a change
};

}  // namespace isopool::worker
