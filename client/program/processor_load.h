// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace isopool::client {

/// Whether a thread may spin without taking a processor from others: compares the number of this
/// process's workers that run a call and of its threads that spin with the number of processors
/// that it may use, as its affinity mask states at the first use. Other processes are not counted.
/// Any thread; no member blocks.
class ProcessorLoad {
 public:
  /// While it lives, a worker runs a call for this process. `callsOfWorker`, which the caller owns
  /// and only this class changes, counts the calls that are under way there: the worker counts
  /// once, however many these are.
  class BusyWorker {
   public:
    explicit BusyWorker(std::atomic<int>& callsOfWorker) noexcept;
    ~BusyWorker();
    BusyWorker(const BusyWorker&) = delete;
    BusyWorker& operator=(const BusyWorker&) = delete;

   private:
    std::atomic<int>& callsOfWorker_;
  };

  /// While it lives, the calling thread counts as spinning, and may spin if granted() is true. That
  /// is decided by the constructor.
  class Spinner {
   public:
    Spinner() noexcept;
    ~Spinner();
    Spinner(const Spinner&) = delete;
    Spinner& operator=(const Spinner&) = delete;
    bool granted() const { return granted_; }

   private:
    bool granted_;
  };
};

}  // namespace isopool::client
