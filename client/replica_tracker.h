// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "client/process_fork.h"
#include "client/worker_link.h"

namespace isopool::client {

/// Which life of each slot's worker has a replicated object, and the program's part in a new one:
/// state that calls left in the object died with the worker before. Any thread.
class ReplicaTracker {
 public:
  using Callback = std::function<void(size_t slot)>;

  explicit ReplicaTracker(size_t slots) : replicas_(slots) {}

  /// The worker has the object from now on. Counted if an earlier life of its slot had it.
  void begun(const WorkerLink& channel);
  /// The slot's worker lets the object go on purpose: what comes next is no loss.
  void unloaded(uint32_t slot);
  /// To be called before each use of the object in a worker that has it: if this is its first since
  /// it was rebuilt, calls the program back; other threads' uses wait meanwhile. Throws what the
  /// callback throws, which is then called again for the next use.
  void restore(const WorkerLink& channel, const Deadline& deadline) {
    if (unrestored_.load(std::memory_order_acquire) != 0) restoreNow(channel, deadline);
  }

  uint64_t rebuilt() const { return rebuilt_.load(std::memory_order_relaxed); }
  /// Throws Error in a forked process, where nothing of the parent's is rebuilt.
  void onRebuilt(Callback callback);

  /// While it lives, what this thread does is part of a callback and waits for none.
  class Restoring {
   public:
    explicit Restoring(bool yes = true);
    ~Restoring();
    Restoring(const Restoring&) = delete;
    Restoring& operator=(const Restoring&) = delete;

   private:
    bool outer_;
  };
  static bool thisThreadRestores();

 private:
  enum class State : uint8_t { kWhole, kRebuilt, kBeingRestored };
  struct Life {
    uint64_t epoch = 0;  ///< 0: the slot has no object that could get lost
    State state = State::kWhole;
  };

  void restoreNow(const WorkerLink& channel, const Deadline& deadline);
  void changedLocked();

  const uint32_t generation_ = forkGeneration();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Life> replicas_;
  std::shared_ptr<const Callback> callback_;
  std::atomic<uint32_t> unrestored_{0};
  std::atomic<uint64_t> rebuilt_{0};
};

}  // namespace isopool::client
