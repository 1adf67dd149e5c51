// SPDX-License-Identifier: BSD-3-Clause
#include "base/running_time.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <utility>

#include "base/loop/time_limit.h"

namespace isopool::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

const TimePoint kBegin{std::chrono::hours(1)};

TEST(RunningTime, OfAProcessThatRunsIsTheClocks) {
  RunningTime time;
  for (int i = 0; i <= 50; ++i) time.look(kBegin + milliseconds(100) * i);
  EXPECT_EQ(time.counted(), milliseconds(5000));
  EXPECT_EQ(time.lost(), milliseconds(0));
}

TEST(RunningTime, DoesNotContainAStop) {
  RunningTime time;
  time.look(kBegin);
  time.look(kBegin + milliseconds(90));
  EXPECT_EQ(time.look(kBegin + std::chrono::seconds(60)), milliseconds(90));
  EXPECT_EQ(time.lost(), std::chrono::seconds(60) - milliseconds(90));
}

TEST(RunningTime, StandsStillForAnIntervalAfterAStop) {
  RunningTime time;
  time.look(kBegin);
  TimePoint now = kBegin + std::chrono::seconds(10);
  time.look(now);
  EXPECT_EQ(time.look(now += milliseconds(60)), milliseconds(0));
  EXPECT_EQ(time.look(now += milliseconds(60)), milliseconds(20));
  EXPECT_EQ(time.look(now += milliseconds(100)), milliseconds(120));
}

TEST(RunningTime, SkipsATimeInWhichNothingWasPending) {
  RunningTime time;
  time.look(kBegin);
  time.skipTo(kBegin + std::chrono::seconds(10));
  EXPECT_EQ(time.look(kBegin + std::chrono::seconds(10) + milliseconds(50)), milliseconds(50));
  EXPECT_EQ(time.lost(), milliseconds(0));
}

TEST(RunningTime, AdvancesOnAMachineWhereEveryLookIsLate) {
  RunningTime time;
  for (int i = 0; i < 200; ++i) time.look(kBegin + milliseconds(500) * i);
  EXPECT_GT(time.counted(), std::chrono::seconds(10));
}

TEST(RunningTime, IgnoresALookThatIsEarlierThanTheLastOne) {
  RunningTime time;
  time.look(kBegin);
  time.look(kBegin + milliseconds(50));
  EXPECT_EQ(time.look(kBegin + milliseconds(20)), milliseconds(50));
  EXPECT_EQ(time.look(kBegin + milliseconds(80)), milliseconds(80));
}

// Stops of any length at any time: never more than the time that the process ran, and the other
// process always has had an interval of it when the limit is reached.
TEST(RunningTime, NeverExceedsTheTimeThatTheProcessRan) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto between = [&](int least, int most) {
      return milliseconds(std::uniform_int_distribution<int>(least, most)(random));
    };
    RunningTime time;
    TimePoint now = kBegin;
    time.look(now);
    nanoseconds ran{0};
    nanoseconds sinceStop = std::chrono::hours(1);
    const nanoseconds limit = between(1, 3000);
    while (time.counted() < limit) {
      const milliseconds step = between(1, 100);
      now += step;
      ran += step;
      sinceStop += step;
      if (between(0, 9).count() == 0) {
        now += between(300, 60'000);
        sinceStop = nanoseconds(0);
      }
      time.look(now);
      ASSERT_LE(time.counted(), ran) << "seed " << seed;
    }
    EXPECT_GE(sinceStop, RunningTime::kBetweenLooks) << "seed " << seed;
    EXPECT_EQ(time.counted() + time.lost(), now - kBegin);
  }
}

/// A loop whose time the test advances. Only alarms.
class PlayedLoop final : public EventLoop {
 public:
  TimePoint now() const override { return now_; }
  void post(Handler) override { FAIL(); }
  void runInBackground(std::function<Handler()>) override { FAIL(); }
  std::unique_ptr<Watch> watch(int) override { return nullptr; }
  void onSignals(const std::vector<int>&, std::function<void(int)>) override { FAIL(); }
  void run() override { FAIL(); }
  void stop() override { FAIL(); }
  bool stopped() const override { return false; }
  std::unique_ptr<Alarm> makeAlarm() override { return std::make_unique<PlayedAlarm>(*this); }

  /// Runs for `time`: calls each alarm when it is due.
  void runFor(milliseconds time) {
    const TimePoint end = now_ + time;
    while (!alarms_.empty() && alarms_.begin()->first <= end) {
      now_ = std::max(now_, alarms_.begin()->first);
      const auto handler = std::move(alarms_.begin()->second.second);
      alarms_.erase(alarms_.begin());
      ++wakeUps_;
      handler();
    }
    now_ = end;
  }
  void standStillFor(milliseconds time) { now_ += time; }
  int wakeUps() const { return wakeUps_; }

 private:
  class PlayedAlarm final : public Alarm {
   public:
    explicit PlayedAlarm(PlayedLoop& loop) : loop_(loop) {}
    ~PlayedAlarm() override { cancel(); }
    void expireAt(TimePoint when, Handler handler) override {
      cancel();
      loop_.alarms_.emplace(when, std::pair(this, std::move(handler)));
    }
    void cancel() override {
      std::erase_if(loop_.alarms_, [this](const auto& each) { return each.second.first == this; });
    }

   private:
    PlayedLoop& loop_;
  };

  TimePoint now_ = kBegin;
  std::multimap<TimePoint, std::pair<PlayedAlarm*, Handler>> alarms_;
  int wakeUps_ = 0;
};

class ATimeLimit : public ::testing::Test {
 protected:
  PlayedLoop loop_;
  TimeLimit limit_{loop_};
  bool over_ = false;
};

TEST_F(ATimeLimit, IsOverAtItsTimeIfTheProcessRuns) {
  limit_.setAfter(Milliseconds(5000), [this] { over_ = true; });
  loop_.runFor(milliseconds(4999));
  EXPECT_FALSE(over_);
  loop_.runFor(milliseconds(1));
  EXPECT_TRUE(over_);
  EXPECT_FALSE(limit_.isSet());
}

TEST_F(ATimeLimit, IsNotOverBecauseTheProcessWasStopped) {
  limit_.setAfter(Milliseconds(5000), [this] { over_ = true; });
  loop_.runFor(milliseconds(1000));
  loop_.standStillFor(milliseconds(60'000));
  loop_.runFor(milliseconds(3000));
  EXPECT_FALSE(over_);
  loop_.runFor(milliseconds(3000));
  EXPECT_TRUE(over_);
}

TEST_F(ATimeLimit, GivesTheOtherProcessTimeAfterAStopThatCameJustBeforeTheEnd) {
  limit_.setAfter(Milliseconds(200), [this] { over_ = true; });
  loop_.runFor(milliseconds(199));
  loop_.standStillFor(milliseconds(10'000));
  loop_.runFor(milliseconds(99));
  EXPECT_FALSE(over_);
  loop_.runFor(milliseconds(101));
  EXPECT_TRUE(over_);
}

TEST_F(ATimeLimit, MayBeSetAgainAndCancelledAndDestroyedByItsCallback) {
  auto limit = std::make_unique<TimeLimit>(loop_);
  int calls = 0;
  limit->setAfter(Milliseconds(100), [&] {
    limit->setAfter(Milliseconds(100), [&] {
      ++calls;
      limit.reset();
    });
  });
  loop_.runFor(milliseconds(1000));
  EXPECT_EQ(calls, 1);
  limit_.setAfter(Milliseconds(100), [this] { over_ = true; });
  limit_.cancel();
  loop_.runFor(milliseconds(1000));
  EXPECT_FALSE(over_);
}

TEST_F(ATimeLimit, WakesTheLoopAFewTimesOnly) {
  limit_.setAfter(Milliseconds(5000), [] {});
  loop_.runFor(milliseconds(10'000));
  EXPECT_LE(loop_.wakeUps(), 9);
}

}  // namespace
}  // namespace isopool::base
