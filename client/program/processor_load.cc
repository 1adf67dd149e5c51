// SPDX-License-Identifier: BSD-3-Clause
#include "client/program/processor_load.h"

#include <atomic>

#include "base/processors.h"

namespace isopool::client {

namespace {

std::atomic<int> busyWorkers{0};
std::atomic<int> spinners{0};

}  // namespace

ProcessorLoad::BusyWorker::BusyWorker(std::atomic<int>& callsOfWorker) noexcept
    : callsOfWorker_(callsOfWorker) {
  if (callsOfWorker_.fetch_add(1, std::memory_order_relaxed) == 0) {
    busyWorkers.fetch_add(1, std::memory_order_relaxed);
  }
}

ProcessorLoad::BusyWorker::~BusyWorker() {
  if (callsOfWorker_.fetch_sub(1, std::memory_order_relaxed) == 1) {
    busyWorkers.fetch_sub(1, std::memory_order_relaxed);
  }
}

ProcessorLoad::Spinner::Spinner() noexcept {
  static const int processors = base::usableProcessors();
  const int spinning = spinners.fetch_add(1, std::memory_order_relaxed) + 1;
  granted_ = spinning + busyWorkers.load(std::memory_order_relaxed) <= processors;
}

ProcessorLoad::Spinner::~Spinner() { spinners.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace isopool::client
