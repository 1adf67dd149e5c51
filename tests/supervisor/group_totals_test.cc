// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/group_totals.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ipc/control/frame.h"
#include "ipc/worker_exit.h"
#include "supervisor/clients/class_totals.h"

namespace isopool::supervisor {
namespace {

using base::Epoch;
using base::Milliseconds;

constexpr Milliseconds kLong{1'000'000};

TEST(GroupTotals, KeepWhatAWorkerDidThatIsGone) {
  GroupTotals totals;
  totals.advance(Epoch(1), 5, Milliseconds(300), kLong);
  totals.advance(Epoch(1), 7, Milliseconds(400), kLong);
  totals.advance(Epoch(2), 1, Milliseconds(10), kLong);
  totals.forget(Epoch(1));
  EXPECT_EQ(totals.calls(), 8u);
  EXPECT_EQ(totals.processorTime(), Milliseconds(410));
}

TEST(GroupTotals, DoNotFallIfAWorkerWritesASmallerCount) {
  GroupTotals totals;
  totals.advance(Epoch(1), 100, Milliseconds(0), kLong);
  totals.advance(Epoch(1), 3, Milliseconds(0), kLong);
  EXPECT_EQ(totals.calls(), 100u);
  totals.advance(Epoch(1), 101, Milliseconds(0), kLong);
  EXPECT_EQ(totals.calls(), 101u) << "what it had before is not counted twice";
}

TEST(GroupTotals, BelieveNoCountThatNoWorkerCanReach) {
  GroupTotals totals;
  totals.advance(Epoch(1), UINT64_MAX, Milliseconds(0), Milliseconds(1000));
  EXPECT_LE(totals.calls(), 20'000'000u);
  const uint64_t before = totals.calls();
  totals.advance(Epoch(2), 10, Milliseconds(0), Milliseconds(0));
  EXPECT_EQ(totals.calls(), before + 10) << "the age is rounded to zero";
}

TEST(GroupTotals, RememberDeathsForFiveMinutes) {
  GroupTotals totals;
  const base::TimePoint start;
  for (int minute = 0; minute < 10; ++minute) {
    totals.countDeath(DeathCause::kCrash, start + std::chrono::minutes(minute));
  }
  EXPECT_EQ(totals.recentDeaths(start + std::chrono::minutes(9)), 6u);
  EXPECT_EQ(totals.recentDeaths(start + std::chrono::minutes(60)), 0u);
  EXPECT_EQ(totals.deaths()[static_cast<size_t>(DeathCause::kCrash)], 10u);
  for (int death = 0; death < 5000; ++death) totals.countDeath(DeathCause::kExit, start);
  EXPECT_EQ(totals.recentDeaths(start), 1000u);
}

TEST(GroupTotals, HaveAKindForEachDenial) {
  GroupTotals totals;
  totals.countDenial("file /etc/shadow", 2);
  totals.countDenial("file ", 1);
  totals.countDenial("system call ptrace", 3);
  totals.countDenial("others", 4);
  totals.countDenial("", UINT64_MAX);
  EXPECT_EQ(totals.denials().at("file"), 3u);
  EXPECT_EQ(totals.denials().at("system_call"), 3u);
  EXPECT_EQ(totals.denials().at("other"), 4u + 1'000'000'000u);
  EXPECT_EQ(totals.denials().size(), 3u);
}

TEST(GroupTotals, PutEachStartIntoOneBucket) {
  GroupTotals totals;
  const auto& bounds = GroupTotals::Starts::kBounds;
  totals.countStart(Milliseconds(0));
  totals.countStart(bounds.front());
  totals.countStart(bounds.front() + Milliseconds(1));
  totals.countStart(bounds.back() + Milliseconds(1));
  const auto& counts = totals.starts().counts;
  EXPECT_EQ(counts.front(), 2u);
  EXPECT_EQ(counts[1], 1u);
  EXPECT_EQ(counts.back(), 1u);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), uint64_t{0}), 4u);
}

TEST(DeathCause, FollowsFromTheExitStatus) {
  EXPECT_EQ(causeOf({.signal = SIGSEGV}), DeathCause::kCrash);
  EXPECT_EQ(causeOf({.signal = SIGKILL}), DeathCause::kKilled);
  EXPECT_EQ(causeOf({.signal = SIGKILL, .killedForMemory = false}), DeathCause::kKilled);
  EXPECT_EQ(causeOf({.signal = SIGKILL, .killedForMemory = true}), DeathCause::kOutOfMemory);
  EXPECT_EQ(causeOf({.signal = SIGSYS}), DeathCause::kForbiddenCall);
  EXPECT_EQ(causeOf({.signal = SIGTERM}), DeathCause::kSignal);
  EXPECT_EQ(causeOf({.exitCode = 0}), DeathCause::kExit);
  EXPECT_EQ(causeOf({.exitCode = ipc::kUnfitWorkerExit}), DeathCause::kUnfit);
  EXPECT_EQ(causeOf({.exitCode = ipc::kGivenUpWorkerExit}), DeathCause::kGaveUp);
}

TEST(ClassTotals, CountWhatClientsDoOnce) {
  ClassTotals all;
  ClassTotals before;
  ClassTotals now{.connections = 1, .completedCalls = 5, .overdueCalls = 1, .refusals = {1, 0, 2}};
  all.advance(before, now);
  all.advance(before, now);
  EXPECT_EQ(all.connections, 1u);
  EXPECT_EQ(all.completedCalls, 5u);
  EXPECT_EQ(all.refusals, (Refusals{1, 0, 2}));
  now.completedCalls = 2;
  all.advance(before, now);
  now.completedCalls = 6;
  all.advance(before, now);
  EXPECT_EQ(all.completedCalls, 6u);
  EXPECT_EQ(all.overdueCalls, 1u);
}

ipc::ModelCalls callsOf(const std::string& model, uint64_t answered) {
  ipc::ModelCalls calls;
  calls.model = model;
  calls.answered = answered;
  calls.failed = 1;
  calls.times.resize(ipc::kCallTimeBounds.size() + 1);
  calls.times[2] = answered;
  calls.sumMicroseconds = 200 * answered;
  return calls;
}

class ModelTotalsTest : public testing::Test {
 protected:
  void add(const std::vector<ipc::ModelCalls>& calls) { totals_.add(calls, now_); }
  void fillPlaces() {
    for (size_t i = 0; i < ModelTotals::kMostModels; ++i) add({callsOf(nameOf(i), 1)});
  }
  static std::string nameOf(size_t i) { return "model " + std::to_string(i); }
  /// The answered calls of a model; nothing if it has no place.
  std::optional<uint64_t> answered(const std::string& name) const {
    for (const ipc::ModelCalls& each : totals_.all()) {
      if (each.model == name) return each.answered;
    }
    return std::nullopt;
  }

  base::TimePoint now_{};
  ModelTotals totals_;
};

TEST_F(ModelTotalsTest, AddUpByName) {
  add({callsOf("b", 2), callsOf("a", 1)});
  add({callsOf("b", 15)});
  const std::vector<ipc::ModelCalls> all = totals_.all();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].model, "a");
  EXPECT_EQ(all[1].answered, 17u);
  EXPECT_EQ(all[1].failed, 2u);
  EXPECT_EQ(all[1].times[2], 17u);
  EXPECT_EQ(all[1].sumMicroseconds, 3400u);
}

TEST_F(ModelTotalsTest, InventedNamesCountTogether) {
  for (size_t i = 0; i < 1000; ++i) add({callsOf(nameOf(i), 1)});
  EXPECT_EQ(totals_.all().size(), ModelTotals::kMostModels + 1);
  EXPECT_EQ(answered(ModelTotals::kOthers), 1000 - ModelTotals::kMostModels);
}

TEST_F(ModelTotalsTest, ANameWithoutACallForAWhileGivesItsPlaceToANewOne) {
  fillPlaces();
  now_ += ModelTotals::kIdle - base::Milliseconds(1);
  add({callsOf("early", 1)});
  EXPECT_EQ(answered("early"), std::nullopt) << "all names had a call lately";
  for (size_t i = 1; i < ModelTotals::kMostModels; ++i) add({callsOf(nameOf(i), 1)});
  now_ += base::Milliseconds(1);
  add({callsOf("new", 5)});
  EXPECT_EQ(answered("new"), 5u);
  EXPECT_EQ(answered(nameOf(0)), std::nullopt);
  EXPECT_EQ(answered(nameOf(1)), 2u);
  EXPECT_EQ(totals_.all().size(), ModelTotals::kMostModels + 1);
}

TEST_F(ModelTotalsTest, ANameThatComesBackGoesOnWithItsCount) {
  fillPlaces();
  add({callsOf(nameOf(0), 41)});
  now_ += ModelTotals::kIdle;
  for (size_t i = 0; i < ModelTotals::kMostModels; ++i) add({callsOf(nameOf(i) + "b", 1)});
  EXPECT_EQ(answered(nameOf(0)), std::nullopt);
  now_ += ModelTotals::kIdle;
  add({callsOf(nameOf(0), 1)});
  EXPECT_EQ(answered(nameOf(0)), 43u);
}

TEST_F(ModelTotalsTest, OfMoreNamesThanAreKeptGrowNoFurther) {
  for (size_t i = 0; i < 2 * ModelTotals::kMostFormer; ++i) {
    add({callsOf(nameOf(i), 1)});
    if (i % ModelTotals::kMostModels == 0) now_ += ModelTotals::kIdle;
  }
  now_ += ModelTotals::kIdle;
  add({callsOf(nameOf(0), 1)});
  EXPECT_EQ(answered(nameOf(0)), 1u) << "its count was kept beyond the limit";
}

TEST_F(ModelTotalsTest, ImpossibleCountsAreRefusedAndAddNothing) {
  ipc::ModelCalls wrong = callsOf("b", 1);
  wrong.times.pop_back();
  EXPECT_THROW(add({callsOf("a", 1), wrong}), ipc::ProtocolError);
  wrong = callsOf("b", UINT64_MAX);
  EXPECT_THROW(add({callsOf("a", 1), wrong}), ipc::ProtocolError);
  wrong = callsOf("b", 1);
  wrong.sumMicroseconds = UINT64_MAX;
  EXPECT_THROW(add({callsOf("a", 1), wrong}), ipc::ProtocolError);
  EXPECT_TRUE(totals_.all().empty());
}

}  // namespace
}  // namespace isopool::supervisor
