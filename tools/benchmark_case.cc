// SPDX-License-Identifier: BSD-3-Clause
#include "tools/benchmark_case.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

namespace tools {

namespace {

using Clock = std::chrono::steady_clock;

std::vector<at::IValue> copied(const std::vector<at::IValue>& inputs, bool shared) {
  std::optional<isopool::SharedMemoryGuard> guard;
  if (shared) guard.emplace();
  std::vector<at::IValue> copies;
  copies.reserve(inputs.size());
  for (const at::IValue& input : inputs) copies.push_back(input.deepcopy());
  return copies;
}

/// The state that the threads of one case share.
class Run {
 public:
  Run(const WorkItem& item, const std::vector<at::IValue>& inputs, const CaseSetting& setting)
      : item_(item),
        inputs_(inputs),
        setting_(setting),
        ready_(static_cast<std::ptrdiff_t>(setting.threads) + 1),
        times_(setting.threads) {}

  CaseResult result() {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < setting_.threads; ++i) threads.emplace_back([this, i] { call(i); });
    ready_.arrive_and_wait();
    const auto begin = Clock::now();
    end_ = begin + std::chrono::duration_cast<Clock::duration>(setting_.least);
    started_.test_and_set();
    started_.notify_all();
    for (auto& thread : threads) thread.join();
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (error_) std::rethrow_exception(error_);

    CaseResult result;
    for (const auto& times : times_) {
      result.seconds.insert(result.seconds.end(), times.begin(), times.end());
    }
    std::sort(result.seconds.begin(), result.seconds.end());
    result.calls = result.seconds.size();
    result.callsPerSecond = static_cast<double>(result.calls) / elapsed;
    return result;
  }

 private:
  void call(size_t thread) {
    const at::NoGradGuard noGradients;
    try {
      // The first call loads the model into its worker.
      item_(thread, copied(inputs_, setting_.sharedInputs));
    } catch (...) {
      fail();
    }
    ready_.arrive_and_wait();
    started_.wait(false);
    try {
      do {
        if (failed_) return;
        auto inputs = copied(inputs_, setting_.sharedInputs);
        const auto begin = Clock::now();
        item_(thread, std::move(inputs));
        times_[thread].push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      } while (Clock::now() < end_);
    } catch (...) {
      fail();
    }
  }

  void fail() {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    failed_ = true;
  }

  const WorkItem& item_;
  const std::vector<at::IValue>& inputs_;
  const CaseSetting& setting_;
  std::barrier<> ready_;
  std::atomic_flag started_;
  Clock::time_point end_;
  std::vector<std::vector<double>> times_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

double CaseResult::latency(double percent) const {
  if (seconds.empty()) return 0;
  const auto index = static_cast<size_t>(static_cast<double>(seconds.size()) * percent / 100);
  return seconds[std::min(index, seconds.size() - 1)];
}

CaseResult runCase(const WorkItem& item, const std::vector<at::IValue>& inputs,
                   const CaseSetting& setting) {
  return Run(item, inputs, setting).result();
}

}  // namespace tools
