// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ipc/channel/futex.h"

namespace isopool::worker {

/// Sleeps on any number of words. The kernel lets a thread sleep on kMaxFutexWatches: beyond that,
/// threads of their own sleep on the rest and wake the sleeper, made when they are first needed and
/// asleep like it. One thread uses it, on which nothing of it may be destroyed by a forked child.
class SleepWatches {
 public:
  SleepWatches() = default;
  SleepWatches(const SleepWatches&) = delete;
  SleepWatches& operator=(const SleepWatches&) = delete;

  void clear() { watches_.clear(); }
  void add(const ipc::SharedWord<uint32_t>* word, uint32_t expected) {
    watches_.push_back({word, expected});
  }
  /// Sleeps until one of the words is not as expected any more, or `timeout` is over (none: sleeps
  /// without one). May return for no reason.
  void sleep(std::optional<std::chrono::nanoseconds> timeout = std::nullopt);

 private:
  // Sleeps on up to kMaxFutexWatches - 1 words for the sleeper. Lives as long as the process.
  struct Deputy {
    std::mutex mutex;
    std::vector<ipc::FutexWatch> watches;     // guarded by mutex
    ipc::SharedWord<uint32_t> generation{0};  // goes up with each new set
  };
  static void deputise(Deputy& deputy, ipc::SharedWord<uint32_t>& woken);

  std::vector<ipc::FutexWatch> watches_;
  std::vector<Deputy*> deputies_;
  ipc::SharedWord<uint32_t>* woken_ = nullptr;  // a deputy saw something
};

}  // namespace isopool::worker
