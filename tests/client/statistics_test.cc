// SPDX-License-Identifier: BSD-3-Clause
// How a pool can be observed: statistics, log, call records.
#include <signal.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <tuple>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using State = WorkerStatistics::State;

class Statistics : public ::testing::Test {
 protected:
  Statistics() { sharedManager(); }
  WorkerStatistics worker(size_t index) const { return manager_.statistics().workers.at(index); }

  InterpreterManager manager_{2};
  Subject subject_{manager_};
};

TEST_F(Statistics, OfANewPoolAreThoseOfServingWorkers) {
  const PoolStatistics all = manager_.statistics();
  ASSERT_EQ(all.workers.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const WorkerStatistics& one = all.workers[i];
    EXPECT_EQ(one.index, i);
    EXPECT_EQ(one.state, State::kServing);
    EXPECT_EQ(one.processId, manager_.allInstances()[i].processId());
    EXPECT_EQ(one.callsInFlight, 0u);
    EXPECT_EQ(one.sessions, 0u);
    EXPECT_EQ(one.restarts, 0u);
    EXPECT_EQ(one.lastDeath, "");
    EXPECT_GT(one.outputBytes, 0u);
    EXPECT_EQ(one.outputBytesLent, 0u);
  }
  EXPECT_EQ(all.callersWaiting, 0u);
  EXPECT_EQ(all.asyncCallsQueued, 0u);
}

TEST_F(Statistics, CountCallsInFlightAndThoseWhoWait) {
  Gate gates[2];
  std::vector<std::future<int64_t>> running;
  for (const Gate& gate : gates) {
    running.push_back(std::async(std::launch::async,
                                 [&] { return subject_.number("wait_at", gate.arguments()); }));
  }
  for (const Gate& gate : gates) gate.arrival();
  EXPECT_EQ(worker(0).callsInFlight, 1u);
  EXPECT_EQ(worker(1).callsInFlight, 1u);
  std::vector<std::future<int64_t>> more;
  for (int i = 0; i < 5; ++i) {
    more.push_back(std::async(std::launch::async, [&] { return subject_.number("pid"); }));
  }
  EXPECT_TRUE(waitUntil([&] {
    const PoolStatistics all = manager_.statistics();
    return all.callersWaiting + all.workers[0].callsInFlight + all.workers[1].callsInFlight == 7;
  }));
  EXPECT_GE(manager_.statistics().callersWaiting, 3u);
  for (const Gate& gate : gates) gate.open();
  for (auto& each : running) each.get();
  for (auto& each : more) each.get();
  EXPECT_EQ(manager_.statistics().callersWaiting, 0u);
  EXPECT_EQ(worker(0).callsInFlight + worker(1).callsInFlight, 0u);
}

TEST_F(Statistics, CountCompletedCallsAndSessions) {
  const auto completed = [&] { return worker(0).completedCalls + worker(1).completedCalls; };
  const uint64_t before = completed();
  for (int i = 0; i < 25; ++i) subject_.number("pid");
  EXPECT_EQ(completed() - before, 25u);
  {
    const InterpreterSession one = manager_.allInstances()[1].acquireSession();
    const InterpreterSession two = manager_.allInstances()[1].acquireSession();
    EXPECT_EQ(worker(1).sessions, 2u);
  }
  EXPECT_EQ(worker(1).sessions, 0u);
}

TEST_F(Statistics, SayWhyTheLastWorkerDiedAndCountOverLives) {
  InterpreterSession session = subject_.object().acquireSession(&manager_.allInstances()[0]);
  for (int i = 0; i < 10; ++i) session.self({"pid"});
  const WorkerStatistics before = worker(0);
  const pid_t victim = before.processId;
  ::kill(victim, SIGTERM);
  ASSERT_TRUE(waitUntil([&] { return worker(0).restarts == 1 && worker(0).lastSignal != 0; }));
  const WorkerStatistics after = worker(0);
  EXPECT_EQ(after.state, State::kServing);
  EXPECT_NE(after.processId, victim);
  EXPECT_NE(after.epoch, before.epoch);
  EXPECT_EQ(after.lastSignal, SIGTERM);
  EXPECT_NE(after.lastDeath.find(std::to_string(victim)), std::string::npos) << after.lastDeath;
  EXPECT_NE(after.lastDeath.find("SIGTERM"), std::string::npos) << after.lastDeath;
  EXPECT_GE(after.completedCalls, before.completedCalls);
  EXPECT_EQ(worker(1).restarts, 0u);
  EXPECT_EQ(manager_.statistics().workersReplaced, 1u);
}

TEST_F(Statistics, NameTheModelsAndCountTheirCalls) {
  const std::string name = "subject.pt:model/model.pkl";
  EXPECT_EQ(subject_.object().name(), name);
  for (int i = 0; i < 20; ++i) subject_.number("pid");
  EXPECT_THROW(subject_.ask("fail", {1}), RemoteError);
  const PoolStatistics all = manager_.statistics();
  ASSERT_EQ(all.models.size(), 1u);
  const ModelStatistics& model = all.models.front();
  EXPECT_EQ(model.name, name);
  EXPECT_EQ(model.answered, 20u);
  EXPECT_EQ(model.failed, 1u);
  EXPECT_EQ(model.latency.count(), 20u);
  EXPECT_GT(model.latency.percentile(50).count(), 0);
  uint32_t loaded = 0;
  for (const WorkerStatistics& worker : all.workers) {
    if (worker.models == std::vector{name}) ++loaded;
    EXPECT_GT(worker.residentBytes, 1u << 20);
  }
  EXPECT_GE(loaded, 1u);
  EXPECT_EQ(model.workers, loaded);
}

TEST_F(Statistics, CountAStreamAsOneCall) {
  const auto model = [&] { return manager_.statistics().models.at(0); };
  {
    ResultStream whole = subject_.object().stream({"count_to", 3});
    while (whole.next()) {
    }
    EXPECT_EQ(model().answered, 1u);
    EXPECT_FALSE(whole.next());
  }
  EXPECT_EQ(model().answered, 1u) << "counted again when it was destroyed";
  {
    ResultStream closed = subject_.object().stream({"count_to", 3});
    EXPECT_TRUE(closed.next());
    EXPECT_EQ(model().answered, 1u) << "counted before its end";
  }
  EXPECT_EQ(model().answered, 2u);
  EXPECT_EQ(model().failed, 0u);
  EXPECT_THROW(std::ignore = subject_.object().stream({"no such method"}), RemoteError);
  EXPECT_EQ(model().failed, 1u);
  EXPECT_EQ(model().answered, 2u);
}

TEST_F(Statistics, KeepTheFiguresOfAModelThatWasReleased) {
  { Subject(manager_).number("pid"); }
  const PoolStatistics all = manager_.statistics();
  ASSERT_EQ(all.models.size(), 1u);
  EXPECT_EQ(all.models.front().answered, 1u);
}

TEST_F(Statistics, SayHowLongACallHasRun) {
  const Gate gate;
  auto call = std::async(std::launch::async, [&] { subject_.ask("wait_at", gate.arguments()); });
  gate.arrival();
  const auto longest = [&] { return std::max(worker(0).runningFor, worker(1).runningFor); };
  EXPECT_TRUE(waitUntil([&] { return longest() >= milliseconds(30); }));
  gate.open();
  call.get();
  EXPECT_TRUE(waitUntil([&] { return longest() == std::chrono::nanoseconds(0); }));
}

TEST(Histogram, HasEachTimeInABucketASixteenthWideAtMost) {
  for (int64_t time = 0; time < (int64_t{1} << 40); time = time * 9 / 8 + 1) {
    const size_t bucket = LatencyHistogram::bucketOf(std::chrono::nanoseconds(time));
    const int64_t longest = LatencyHistogram::longestOf(bucket).count();
    EXPECT_GE(longest, time);
    EXPECT_LE(longest, time + time / 16);
    if (bucket > 0) {
      EXPECT_LT(LatencyHistogram::longestOf(bucket - 1).count(), time);
    }
  }
  EXPECT_EQ(LatencyHistogram::bucketOf(std::chrono::hours(24)), LatencyHistogram::kBuckets - 1);
  EXPECT_EQ(LatencyHistogram::bucketOf(std::chrono::nanoseconds(-1)), 0u);
}

TEST(Histogram, CanBeAddedAndSubtracted) {
  LatencyHistogram first;
  EXPECT_EQ(first.percentile(50), std::chrono::nanoseconds(0));
  for (int i = 1; i <= 99; ++i) first.add(std::chrono::nanoseconds(10));
  first.add(std::chrono::nanoseconds(1000));
  EXPECT_EQ(first.percentile(50), std::chrono::nanoseconds(10));
  EXPECT_EQ(first.percentile(99), std::chrono::nanoseconds(10));
  EXPECT_GE(first.percentile(100), std::chrono::nanoseconds(1000));
  LatencyHistogram both = first;
  LatencyHistogram second;
  second.add(std::chrono::nanoseconds(3));
  both += second;
  EXPECT_EQ(both.count(), 101u);
  EXPECT_EQ((both - first).count(), 1u);
  EXPECT_EQ((both - first).percentile(100), std::chrono::nanoseconds(3));
}

TEST_F(Statistics, SayThatASlotIsQuarantined) {
  OwnPool pool(1, {"ISOPOOL_RESTART_LIMIT=2", "ISOPOOL_SPARES=0"});
  const auto one = [&] { return pool.manager().statistics().workers.at(0); };
  ASSERT_TRUE(waitUntil([&] {
    if (const int process = one().processId; process != 0) ::kill(process, SIGKILL);
    return one().state == State::kQuarantined;
  }));
  EXPECT_NE(one().quarantine, "");
  EXPECT_EQ(one().processId, 0);
}

TEST_F(Statistics, CountWhatResultsHoldOfAWorkersMemory) {
  const auto lent = [&] {
    const PoolStatistics all = manager_.statistics();
    return std::make_pair(all.workers[0].outputBytesLent + all.workers[1].outputBytesLent,
                          all.workers[0].outputBlocksLent + all.workers[1].outputBlocksLent);
  };
  ASSERT_EQ(lent(), std::make_pair(uint64_t{0}, uint64_t{0}));
  at::Tensor result = subject_.tensor("zeros", {100'000});
  EXPECT_EQ(lent(), std::make_pair(uint64_t{400'000}, uint64_t{1}));
  result.reset();
  EXPECT_EQ(lent(), std::make_pair(uint64_t{0}, uint64_t{0}));
}

TEST_F(Statistics, CountTheMemoryOfInputs) {
  const uint64_t before = manager_.statistics().inputBytesInUse;
  const at::Tensor held = empty({1 << 20}, at::kByte);
  const PoolStatistics now = manager_.statistics();
  EXPECT_EQ(now.inputBytesInUse - before, uint64_t{1} << 20);
  EXPECT_GE(now.inputBytes, now.inputBytesInUse);
}

TEST_F(Statistics, DoNotWaitForABusyOrStoppedWorker) {
  const pid_t worker = manager_.allInstances()[0].processId().value();
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  const auto began = Clock::now();
  for (int i = 0; i < 1000; ++i) manager_.statistics();
  EXPECT_LT(Clock::now() - began, milliseconds(1000));
  ASSERT_EQ(::kill(worker, SIGCONT), 0);
}

// ---- log and records -------------------------------------------------------------------------

class Observation : public Statistics {
 protected:
  ~Observation() override {
    setLogger(nullptr);
    setCallObserver(nullptr);
  }
  std::vector<std::pair<LogLevel, std::string>> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool logged(LogLevel level, const std::vector<std::string>& parts) {
    for (const auto& [each, text] : lines()) {
      const bool all = std::all_of(parts.begin(), parts.end(), [&, line = text](const auto& part) {
        return line.find(part) != std::string::npos;
      });
      if (each == level && all) return true;
    }
    return false;
  }
  void logHere() {
    setLogger([this](LogLevel level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(level, text);
    });
  }
  void recordHere() {
    setCallObserver([this](const CallRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    });
  }
  CallRecord last() {
    const std::lock_guard lock(mutex_);
    return records_.empty() ? CallRecord() : records_.back();
  }

  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
  std::vector<CallRecord> records_;
};

TEST_F(Observation, AWorkersDeathAndItsReplacementAreLogged) {
  logHere();
  const pid_t victim = manager_.allInstances()[1].processId().value();
  subject_.object()
      .acquireSession(&manager_.allInstances()[1])
      .self({"complain", "these are my last words"});
  ::kill(victim, SIGKILL);
  EXPECT_TRUE(waitUntil([&] {
    return logged(LogLevel::kWarning, {"worker 1 (pid " + std::to_string(victim) + ")", "SIGKILL",
                                       "these are my last words"});
  }));
  EXPECT_TRUE(waitUntil([&] { return logged(LogLevel::kDebug, {"worker 1 (pid ", "serves"}); }));
}

TEST_F(Observation, QuarantineAndALostSupervisorAreLogged) {
  logHere();
  OwnPool pool(1, {"ISOPOOL_RESTART_LIMIT=1", "ISOPOOL_SPARES=0"});
  EXPECT_TRUE(waitUntil([&] {
    if (const auto process = pool.processOf(0); process > 0) ::kill(process, SIGKILL);
    return logged(LogLevel::kError, {"slot 0 stays empty", "ISOPOOL_QUARANTINE"});
  }));
  ::kill(pool.tree().supervisor(), SIGKILL);
  EXPECT_TRUE(waitUntil([&] { return logged(LogLevel::kError, {"supervisor is gone"}); }));
}

TEST_F(Observation, ALoggerMayAskForStatisticsAndMayThrow) {
  std::atomic<int> asked{0};
  setLogger([&](LogLevel, std::string_view) {
    asked += static_cast<int>(manager_.statistics().workers.size());
    throw std::runtime_error("the log is full");
  });
  ::kill(manager_.allInstances()[0].processId().value(), SIGKILL);
  EXPECT_TRUE(waitUntil([&] { return asked >= 4; }));
  EXPECT_GT(subject_.number("pid"), 0);
}

TEST_F(Observation, ACallsRecordHasItsNameWorkerAndTimes) {
  recordHere();
  const auto began = Clock::now();
  const auto process = static_cast<int>(subject_.number("work", {20}));
  const auto took = Clock::now() - began;
  const CallRecord record = last();
  EXPECT_EQ(record.kind, CallKind::kCall);
  EXPECT_EQ(record.outcome, CallOutcome::kReturned);
  EXPECT_EQ(record.processId, process);
  ASSERT_GE(record.worker, 0);
  EXPECT_EQ(manager_.allInstances()[static_cast<size_t>(record.worker)].processId(), process);
  EXPECT_GE(record.inWorker, milliseconds(20));
  EXPECT_LE(record.waited + record.inWorker, took);
  EXPECT_GT(record.sequence, 0u);
  EXPECT_EQ(record.epoch, worker(static_cast<size_t>(record.worker)).epoch);
}

TEST_F(Observation, ARecordHasTheModelTheMethodAndTheCallersTag) {
  recordHere();
  CallOptions options;
  options.tag = 42;
  subject_.ask("pid", {}, options);
  EXPECT_EQ(last().model, "subject.pt:model/model.pkl");
  EXPECT_EQ(last().method, "");
  EXPECT_EQ(last().tag, 42u);
  options.tag = 43;
  (void)subject_.object().method("pid").call({}, {}, options);
  EXPECT_EQ(last().method, "pid");
  EXPECT_EQ(last().tag, 43u);
  subject_.object().callAsync({"pid"}, {}, options).get();
  EXPECT_EQ(last().tag, 43u);
  InterpreterSession session = subject_.object().acquireSession();
  (void)session.self.call({"pid"}, {}, options);
  EXPECT_EQ(last().model, "");
  EXPECT_EQ(last().tag, 43u);
}

TEST_F(Observation, ARecordHasTheCallsKindAndOutcome) {
  recordHere();
  EXPECT_THROW(subject_.ask("fail", {1}), RemoteError);
  EXPECT_EQ(last().outcome, CallOutcome::kRaised);
  EXPECT_THROW(subject_.ask("die", {9}), WorkerLost);
  EXPECT_EQ(last().outcome, CallOutcome::kWorkerLost);
  EXPECT_THROW(subject_.ask("identity", {at::eye(2).to_sparse()}), Error);
  EXPECT_EQ(last().outcome, CallOutcome::kRefused);
  CallOptions options;
  options.deadline = milliseconds(50);
  EXPECT_THROW(subject_.ask("work", {10'000}, options), DeadlineExceeded);
  EXPECT_EQ(last().outcome, CallOutcome::kDeadlineExceeded);
  EXPECT_TRUE(subject_.object().hasattr("weight"));
  EXPECT_EQ(last().kind, CallKind::kAttribute);
  InterpreterSession session = subject_.object().acquireSession();
  session.self({"pid"});
  EXPECT_EQ(last().kind, CallKind::kObjCall);
  session.self({"pid"}).toIValue();
  EXPECT_EQ(last().kind, CallKind::kValue);
  subject_.object().stream({"count_to", 3}).next();
  EXPECT_EQ(last().kind, CallKind::kStreamItem);
}

TEST_F(Observation, WithoutAnObserverNothingIsRecorded) {
  recordHere();
  subject_.number("pid");
  setCallObserver(nullptr);
  subject_.number("pid");
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(records_.size(), 1u);
}

}  // namespace
}  // namespace isopool::tests
