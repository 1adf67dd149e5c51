// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/sleep_watches.h"

#include <algorithm>
#include <optional>

#include "base/blocked_signals.h"

namespace isopool::worker {

namespace {

constexpr size_t kOwn = ipc::kMaxFutexWatches - 1;        // one is for the deputies' word
constexpr size_t kPerDeputy = ipc::kMaxFutexWatches - 1;  // one is for its generation

}  // namespace

void SleepWatches::sleep(std::optional<std::chrono::nanoseconds> timeout) {
  if (watches_.size() <= ipc::kMaxFutexWatches) return ipc::futexWait(watches_, timeout);
  // Never destroyed: the threads use them for as long as the process lives.
  if (woken_ == nullptr) woken_ = new ipc::SharedWord<uint32_t>(0);
  const uint32_t seen = woken_->load(std::memory_order_acquire);
  size_t used = 0;
  for (size_t begin = kOwn; begin < watches_.size(); begin += kPerDeputy, ++used) {
    if (used == deputies_.size()) {
      deputies_.push_back(new Deputy);
      const base::BlockedSignals blocked;
      std::thread([deputy = deputies_.back(), woken = woken_] {
        deputise(*deputy, *woken);
      }).detach();
    }
    Deputy& deputy = *deputies_[used];
    {
      base::MutexLock lock(deputy.mutex);
      const auto first = watches_.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto count = std::min(kPerDeputy, watches_.size() - begin);
      deputy.watches.assign(first, first + static_cast<std::ptrdiff_t>(count));
      deputy.generation.fetch_add(1, std::memory_order_release);
    }
    ipc::futexWake(deputy.generation);
  }
  std::vector<ipc::FutexWatch> own(watches_.begin(), watches_.begin() + kOwn);
  own.push_back({woken_, seen});
  ipc::futexWait(own, timeout);
}

void SleepWatches::deputise(Deputy& deputy, ipc::SharedWord<uint32_t>& woken) {
  std::vector<ipc::FutexWatch> watches;
  uint32_t done = 0;  // the last generation that it slept on
  for (;;) {
    uint32_t generation = 0;
    {
      base::MutexLock lock(deputy.mutex);
      watches = deputy.watches;
      generation = deputy.generation.load(std::memory_order_relaxed);
    }
    if (generation == done) {
      const ipc::FutexWatch next{&deputy.generation, done};
      ipc::futexWait({&next, 1}, std::nullopt);
      continue;
    }
    done = generation;
    watches.push_back({&deputy.generation, generation});
    // A channel of an old set may be gone by now: this only ends the sleep.
    ipc::futexWait(watches, std::nullopt);
    // A new set comes from a sleeper that is awake and chose the expected values by what it has
    // seen. Waking it for an old set would make it distribute a new one, and so on without end.
    if (deputy.generation.load(std::memory_order_acquire) != generation) continue;
    woken.fetch_add(1, std::memory_order_release);
    ipc::futexWake(woken);
  }
}

}  // namespace isopool::worker
