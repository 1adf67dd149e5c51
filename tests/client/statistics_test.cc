// SPDX-License-Identifier: BSD-3-Clause
// How a pool can be observed: statistics, log, call records.
#include <signal.h>

#include <algorithm>
#include <future>
#include <mutex>

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
