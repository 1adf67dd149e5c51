// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "base/log/log.h"

namespace isopool::simulation {
namespace {

uint64_t numberFrom(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string textOf(uint64_t seed, const Report& report) {
  std::string text = "ISOPOOL_TEST_SEED=" + std::to_string(seed);
  for (const std::string& violation : report.violations) text += "\n  " + violation;
  return text;
}

class Simulated : public testing::Test {
 protected:
  Simulated() { base::startLog(base::LogLevel::kOff, base::LogFormat::kText); }
};

// One test for each share of the seeds, so that the shares run in parallel.
class Storm : public Simulated, public testing::WithParamInterface<uint64_t> {};

constexpr uint64_t kShares = 2;

TEST_P(Storm, LeavesEachCallWithOneOutcomeAndEachPoolServed) {
  if (std::getenv("ISOPOOL_TEST_SEED") != nullptr) {
    if (GetParam() != 0) GTEST_SKIP() << "one seed was requested; the first share runs it";
    const uint64_t seed = numberFrom("ISOPOOL_TEST_SEED", 0);
    const Report report = simulate(seed);
    EXPECT_TRUE(report.violations.empty()) << textOf(seed, report);
    return;
  }
  const uint64_t seeds = numberFrom("ISOPOOL_SIMULATION_SEEDS", 2000) / kShares;
  Report sum;
  uint64_t failed = 0;
  const auto began = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < seeds && failed < 5; ++i) {
    const uint64_t seed = 1 + i * kShares + GetParam();
    const Report report = simulate(seed);
    EXPECT_TRUE(report.violations.empty()) << textOf(seed, report);
    if (!report.violations.empty()) ++failed;
    sum.steps += report.steps;
    sum.seconds += report.seconds;
    sum.calls += report.calls;
    sum.answered += report.answered;
    sum.lost += report.lost;
    sum.notStarted += report.notStarted;
    sum.overdue += report.overdue;
    sum.refused += report.refused;
    sum.workers += report.workers;
    sum.zygotes += report.zygotes;
    sum.quarantines += report.quarantines;
  }
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf(
      "%llu seeds in %.1f s (%.0f a second): %.1f simulated hours, %llu steps, %llu workers, "
      "%llu zygotes, %llu quarantines; calls: %llu answered, %llu lost, %llu not started, %llu "
      "overdue, %llu refused\n",
      static_cast<unsigned long long>(seeds), took, static_cast<double>(seeds) / took,
      sum.seconds / 3600, static_cast<unsigned long long>(sum.steps),
      static_cast<unsigned long long>(sum.workers), static_cast<unsigned long long>(sum.zygotes),
      static_cast<unsigned long long>(sum.quarantines),
      static_cast<unsigned long long>(sum.answered), static_cast<unsigned long long>(sum.lost),
      static_cast<unsigned long long>(sum.notStarted), static_cast<unsigned long long>(sum.overdue),
      static_cast<unsigned long long>(sum.refused));
  // A storm in which few calls are answered tests nothing.
  EXPECT_GT(sum.answered, sum.calls / 4);
  EXPECT_GT(sum.lost, 0u);
  EXPECT_GT(sum.quarantines, 0u);
}

INSTANTIATE_TEST_SUITE_P(Share, Storm, testing::Range<uint64_t>(0, kShares));

using Seeds = Simulated;

TEST_F(Seeds, ReplayExactly) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Report first = simulate(seed);
    const Report second = simulate(seed);
    EXPECT_EQ(first.trace, second.trace) << "seed " << seed;
    EXPECT_EQ(first.steps, second.steps) << "seed " << seed;
  }
}

TEST_F(Seeds, DifferFromEachOther) { EXPECT_NE(simulate(1).trace, simulate(2).trace); }

/// The first seed that finds the planted fault; 0 if none of a hundred seeds finds it.
uint64_t foundBySeed(const std::function<void(Misfortunes&)>& plant, const char* claim) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    for (const std::string& violation : simulate(seed, plant).violations) {
      if (violation.find(claim) == std::string::npos) continue;
      std::cout << "found by seed " << seed << ": " << violation << std::endl;
      return seed;
    }
  }
  return 0;
}

using PlantedFault = Simulated;

TEST_F(PlantedFault, ALostAssignmentIsFound) {
  EXPECT_NE(foundBySeed([](Misfortunes& faults) { faults.clientForgetsAssignments = true; },
                        "not every client is served"),
            0u);
}

TEST_F(PlantedFault, ALostCallThatIsRunAgainIsFound) {
  EXPECT_NE(
      foundBySeed([](Misfortunes& faults) { faults.clientRepeatsLostCalls = true; }, "ran twice"),
      0u);
}

TEST_F(PlantedFault, ACancelledCallThatRunsIsFound) {
  EXPECT_NE(foundBySeed([](Misfortunes& faults) { faults.workerRunsRecalledCalls = true; },
                        "informed that it never runs"),
            0u);
}

}  // namespace
}  // namespace isopool::simulation
