// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace isopool::client {

/// Whether spinning is free: this process counts its workers that are running a call and its
/// threads that spin, and compares with the processors that it may use. Any thread.
class ProcessorLoad {
 public:
  /// While it lives a worker is running a call for this process. `callsOfWorker` counts all that
  /// are under way there, however many the worker is one.
  class BusyWorker {
   public:
    explicit BusyWorker(std::atomic<int>& callsOfWorker) noexcept;
    ~BusyWorker();
    BusyWorker(const BusyWorker&) = delete;
    BusyWorker& operator=(const BusyWorker&) = delete;

   private:
    std::atomic<int>& callsOfWorker_;
  };

  /// While it lives the calling thread may spin, if granted() is true.
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
