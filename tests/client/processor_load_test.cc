// SPDX-License-Identifier: BSD-3-Clause
#include "client/program/processor_load.h"

#include <gtest/gtest.h>

#include <atomic>
#include <list>

#include "testing/one_processor.h"

namespace isopool::tests {

using client::ProcessorLoad;

TEST(ProcessorLoad, CountsABusyWorkerOnce) {
  const size_t processors = usableProcessors().size();
  if (processors < 2) GTEST_SKIP() << "on one processor no thread may spin beside a worker";
  std::atomic<int> calls{0};
  std::list<ProcessorLoad::BusyWorker> ofOneWorker;
  for (size_t i = 0; i < 2 * processors; ++i) ofOneWorker.emplace_back(calls);
  EXPECT_TRUE(ProcessorLoad::Spinner().granted());
  ofOneWorker.pop_back();
  EXPECT_TRUE(ProcessorLoad::Spinner().granted());
}

TEST(ProcessorLoad, ForbidsSpinningWhenEveryProcessorHasAWorker) {
  const size_t processors = usableProcessors().size();
  std::list<std::atomic<int>> calls;
  std::list<ProcessorLoad::BusyWorker> workers;
  for (size_t i = 0; i < processors; ++i) workers.emplace_back(calls.emplace_back(0));
  EXPECT_FALSE(ProcessorLoad::Spinner().granted());
  if (processors < 2) return;
  workers.pop_back();
  EXPECT_TRUE(ProcessorLoad::Spinner().granted());
}

}  // namespace isopool::tests
