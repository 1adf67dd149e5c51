// SPDX-License-Identifier: BSD-3-Clause
// Which worker gets a call while other workers run steps, or work for which no thread waits.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "tests/client/attached_managers.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using State = WorkerStatistics::State;

// An answer within this time shows that the call did not wait for a gate that is still closed.
constexpr milliseconds kLimit(8'000);

CallOptions within(milliseconds time) {
  CallOptions options;
  options.deadline = time;
  return options;
}

/// Opens its gate when the test ends, if it is not open: no worker may wait any longer.
struct OpenedGate : Gate {
  ~OpenedGate() { open(); }
};

/// A step that waits at a gate, in its own session, and a thread that waits for the step.
class RunningStep {
 public:
  RunningStep(const Subject& subject, const Gate& gate)
      : gate_(gate),
        done_(std::async(std::launch::async,
                         [object = subject.object(), arguments = gate.arguments()] {
                           InterpreterSession session = object.acquireSession();
                           return session.self({at::IValue("wait_at"), arguments[0], arguments[1]})
                               .toIValue()
                               .toInt();
                         })) {
    EXPECT_TRUE(waitUntil([&] { return gate.arrival() > 0; }));
  }
  ~RunningStep() { gate_.open(); }
  /// Waits for the step's end. Returns the process that ran it.
  pid_t result() { return static_cast<pid_t>(done_.get()); }

 private:
  const Gate& gate_;
  std::future<int64_t> done_;
};

/// Makes a worker run the `finally` of a closed stream until the gate opens. Returns its process.
pid_t closeStreamThatWaits(const Subject& subject, const Gate& gate) {
  std::vector<at::IValue> arguments = gate.arguments();
  arguments.insert(arguments.begin(), "wait_when_closed");
  ResultStream stream = subject.object().stream(std::move(arguments));
  stream.next();
  stream.close();
  EXPECT_TRUE(waitUntil([&] { return gate.arrival() > 0; }));
  return gate.arrival();
}

pid_t answerer(const Subject& subject) {
  return static_cast<pid_t>(subject.ask("pid", {}, within(kLimit)).toInt());
}

class Routing : public ::testing::Test {
 protected:
  Routing() {
    sharedManager();
    manager_.emplace(2);
    subject_.emplace(*manager_);
    subject_->object().callOnAll({"pid"});
  }
  const Subject& subject() const { return *subject_; }
  size_t slotOf(pid_t process) {
    return manager_->allInstances()[0].processId() == process ? 0 : 1;
  }
  /// Waits for an answer of the other worker: it has then run all requests sent before. Until then
  /// the pool can't predict which of the two workers takes longer.
  void finishReleases(pid_t occupied) const { ASSERT_NE(answerer(subject()), occupied); }
  WorkerStatistics worker(size_t slot) { return manager_->statistics().workers.at(slot); }

  std::optional<InterpreterManager> manager_;
  std::optional<Subject> subject_;
};

TEST_F(Routing, CallsAvoidAWorkerThatRunsTheFinallyOfAClosedStream) {
  const OpenedGate gate;
  const pid_t occupied = closeStreamThatWaits(subject(), gate);
  for (int i = 0; i < 20; ++i) ASSERT_NE(answerer(subject()), occupied) << "call " << i;
}

TEST_F(Routing, CallsAvoidAWorkerThatRunsAStepOfASession) {
  const OpenedGate gate;
  RunningStep step(subject(), gate);
  for (int i = 0; i < 20; ++i) ASSERT_NE(answerer(subject()), gate.arrival()) << "call " << i;
  gate.open();
  EXPECT_EQ(step.result(), gate.arrival());
}

TEST_F(Routing, SessionsAvoidAWorkerThatRunsTheFinallyOfAClosedStream) {
  const OpenedGate gate;
  const pid_t occupied = closeStreamThatWaits(subject(), gate);
  std::vector<InterpreterSession> sessions;
  for (int i = 0; i < 4; ++i) {
    finishReleases(occupied);
    sessions.push_back(manager_->acquireOne());
    auto pid = std::async(std::launch::async, [&] {
      return sessions.back().global("os", "getpid")(at::ArrayRef<at::IValue>{}).toIValue().toInt();
    });
    const bool answered = pid.wait_for(kLimit) == std::future_status::ready;
    EXPECT_TRUE(answered) << "session " << i;
    gate.arrival();
    if (!answered) gate.open();
    const int64_t process = pid.get();
    if (!answered) return;
    EXPECT_NE(process, occupied);
  }
}

TEST_F(Routing, SessionsAvoidAWorkerThatRunsTheDelOfAReleasedObject) {
  const OpenedGate gate;
  InterpreterSession session = subject().object().acquireSession();
  const auto arguments = gate.arguments();
  session.self({at::IValue("wait_when_released"), arguments[0], arguments[1]});
  // The release of the handle is sent with the session's next step. This step waits behind it.
  auto behind = std::async(std::launch::async,
                           [&] { return session.self({at::IValue("pid")}).toIValue().toInt(); });
  ASSERT_TRUE(waitUntil([&] { return gate.arrival() > 0; }));
  // The other worker has more sessions.
  const Interpreter& free = manager_->allInstances()[1 - slotOf(gate.arrival())];
  std::vector<InterpreterSession> idle;
  for (int i = 0; i < 3; ++i) idle.push_back(free.acquireSession());
  for (int i = 0; i < 4; ++i) {
    finishReleases(gate.arrival());
    auto other = std::async(std::launch::async, [&] {
      return subject().object().acquireSession().self({at::IValue("pid")}).toIValue().toInt();
    });
    const bool answered = other.wait_for(kLimit) == std::future_status::ready;
    EXPECT_TRUE(answered) << "session " << i;
    if (!answered) gate.open();
    const int64_t process = other.get();
    if (!answered) break;
    EXPECT_NE(process, gate.arrival());
  }
  gate.open();
  EXPECT_EQ(behind.get(), gate.arrival());
}

TEST_F(Routing, SessionsPreferTheWorkerThatHasRunItsRequestForTheShorterTime) {
  const OpenedGate gates[2];
  const Interpreter& later = manager_->allInstances()[1];
  std::vector<InterpreterSession> idle;
  for (int i = 0; i < 3; ++i) idle.push_back(later.acquireSession());
  const auto waitFor = [](milliseconds time) {
    return waitUntil([time, begin = Clock::now()] { return Clock::now() - begin > time; });
  };
  RunningStep first(subject(), gates[0]);
  ASSERT_NE(gates[0].arrival(), later.processId());
  ASSERT_TRUE(waitFor(milliseconds(1'100)));
  RunningStep second(subject(), gates[1]);
  ASSERT_EQ(gates[1].arrival(), later.processId());
  // The two requests' times differ by a factor of more than ten.
  ASSERT_TRUE(waitFor(milliseconds(30)));
  InterpreterSession session = manager_->acquireOne();
  gates[0].open();
  gates[1].open();
  const int64_t process =
      session.global("os", "getpid")(at::ArrayRef<at::IValue>{}).toIValue().toInt();
  EXPECT_EQ(process, gates[1].arrival());
}

// The third call finds both workers busy and is sent to one of them.
void expectMoved(bool stepEnds) {
  InterpreterManager manager(2);
  const Subject subject(manager);
  subject.object().callOnAll({"pid"});
  const OpenedGate stepGate;
  const OpenedGate callGate;
  RunningStep step(subject, stepGate);
  const auto arguments = callGate.arguments();
  PendingCall call = subject.object().callAsync({"wait_at", arguments[0], arguments[1]});
  ASSERT_TRUE(waitUntil([&] { return callGate.arrival() > 0; }));
  PendingCall third = subject.object().callAsync({"pid"}, {}, within(kLimit));
  ASSERT_TRUE(waitUntil([&] { return manager.statistics().asyncCallsQueued == 0; }));
  const Gate& opened = stepEnds ? static_cast<const Gate&>(stepGate) : callGate;
  opened.open();
  EXPECT_EQ(third.get().toInt(), opened.arrival());
  EXPECT_EQ(manager.callsRerun(), 0);
}

TEST_F(Routing, ACallThatHasNotStartedMovesToTheWorkerWhoseStepEnds) { expectMoved(true); }

TEST_F(Routing, ACallThatHasNotStartedMovesToTheWorkerWhoseCallEnds) { expectMoved(false); }

/// A pool whose calls go to its first worker until useBoth(), and an object that no worker has
/// made.
class RoutingOfAColdObject : public ::testing::Test {
 protected:
  RoutingOfAColdObject() {
    sharedManager();
    manager_.emplace(2);
    subject_.emplace(*manager_);
    cold_.emplace(*manager_);
    manager_->debugLimitInterpreters(1);
    // The pool sends a call to a busy worker if previous calls were short.
    for (int i = 0; i < 50; ++i) subject_->ask("pid");
    ReplicatedObj(cold_->object()).unload();
  }
  pid_t process(size_t slot) { return manager_->allInstances()[slot].processId().value_or(-1); }
  PendingCall callCold() {
    PendingCall call = cold_->object().callAsync({"pid"}, {}, within(kLimit));
    EXPECT_TRUE(waitUntil([&] { return manager_->statistics().asyncCallsQueued == 0; }));
    return call;
  }
  void useBoth() { manager_->debugLimitInterpreters(2); }

  std::optional<InterpreterManager> manager_;
  std::optional<Subject> subject_;
  std::optional<Subject> cold_;
};

TEST_F(RoutingOfAColdObject, ACallMovesAwayFromAWorkerThatRunsAStep) {
  const OpenedGate gate;
  RunningStep step(*subject_, gate);
  ASSERT_EQ(gate.arrival(), process(0));
  PendingCall call = callCold();
  useBoth();
  EXPECT_EQ(call.get().toInt(), process(1));
  EXPECT_EQ(manager_->callsRerun(), 0);
}

TEST_F(RoutingOfAColdObject, ACallMovesAwayFromAWorkerThatLoadsAnObjectForAnotherThread) {
  std::future<void> loading;
  const OpenedGate gate;
  const auto names = gate.arguments();
  manager_->registerModuleSource("loading", "log = '" + (testFolder() / "cold-loads").string() +
                                                "'\narrived = '" + names[0].toStringRef() +
                                                "'\ngate = '" + names[1].toStringRef() + "'\n");
  loading = std::async(std::launch::async, [this] {
    manager_->loadPackage(packagePath()).loadPickle("model", "slow_to_load.pkl");
  });
  ASSERT_EQ(gate.arrival(), process(0));
  PendingCall call = callCold();
  useBoth();
  EXPECT_EQ(call.get().toInt(), process(1));
  EXPECT_EQ(manager_->callsRerun(), 0);
}

TEST_F(Routing, ACallThatCanMoveIsStillCancelledAndKeepsItsDeadline) {
  const OpenedGate gates[2];
  RunningStep first(subject(), gates[0]);
  RunningStep second(subject(), gates[1]);
  EXPECT_THROW(subject().ask("pid", {}, within(milliseconds(100))), DeadlineExceeded);
  PendingCall call = subject().object().callAsync({"pid"});
  ASSERT_TRUE(waitUntil([&] { return manager_->statistics().asyncCallsQueued == 0; }));
  EXPECT_TRUE(call.cancel());
  EXPECT_THROW(call.get(), Cancelled);
}

TEST_F(Routing, StatisticsShowThatAWorkerRunsTheFinallyOfAClosedStream) {
  const OpenedGate gate;
  const size_t occupied = slotOf(closeStreamThatWaits(subject(), gate));
  EXPECT_EQ(worker(occupied).state, State::kCleaningUp);
  EXPECT_EQ(worker(1 - occupied).state, State::kServing);
  gate.open();
  EXPECT_TRUE(waitUntil([&] { return worker(occupied).state == State::kServing; }));
}

TEST_F(Routing, StatisticsCountStepsThatRun) {
  const OpenedGate gate;
  RunningStep step(subject(), gate);
  const size_t occupied = slotOf(gate.arrival());
  EXPECT_EQ(worker(occupied).stepsInFlight, 1);
  EXPECT_EQ(worker(occupied).callsInFlight, 0);
  EXPECT_EQ(worker(1 - occupied).stepsInFlight, 0);
  gate.open();
  step.result();
  EXPECT_EQ(worker(occupied).stepsInFlight, 0);
}

// ---- ISOPOOL_CLEANUP_TIMEOUT -------------------------------------------------------------------

TEST(CleanupTimeout, ReplacesAWorkerWhenACallWaitsBehindTheFinallyOfAClosedStream) {
  OwnPool pool(1, {"ISOPOOL_CLEANUP_TIMEOUT=300ms"});
  const OpenedGate gate;
  InterpreterSession session = pool.subject().object().acquireSession();
  const pid_t occupied = closeStreamThatWaits(pool.subject(), gate);
  EXPECT_NE(answerer(pool.subject()), occupied);
  try {
    session.self({at::IValue("pid")});
    FAIL() << "the session's worker was not replaced";
  } catch (const WorkerLost& lost) {
    EXPECT_NE(lost.crashLog().find("ISOPOOL_CLEANUP_TIMEOUT"), std::string::npos)
        << lost.crashLog();
  }
}

TEST(CleanupTimeout, ReplacesAWorkerWhenAStepWaitsBehindTheDelOfAReleasedObject) {
  OwnPool pool(1, {"ISOPOOL_CLEANUP_TIMEOUT=300ms"});
  const OpenedGate gate;
  InterpreterSession session = pool.subject().object().acquireSession();
  const auto arguments = gate.arguments();
  session.self({at::IValue("wait_when_released"), arguments[0], arguments[1]});
  auto behind = std::async(std::launch::async, [&] { session.self({at::IValue("pid")}); });
  const bool ended = behind.wait_for(kLimit) == std::future_status::ready;
  gate.open();
  ASSERT_TRUE(ended);
  EXPECT_THROW(behind.get(), WorkerLost);
}

TEST(CleanupTimeout, ReplacesAWorkerThatKeepsACallOnAllWorkersFromEnding) {
  OwnPool pool(2, {"ISOPOOL_CLEANUP_TIMEOUT=300ms"});
  const OpenedGate gate;
  const pid_t occupied = closeStreamThatWaits(pool.subject(), gate);
  for (const at::IValue& each : pool.subject().object().callOnAll({"pid"}, {}, within(kLimit))) {
    EXPECT_NE(each.toInt(), occupied);
  }
}

TEST(CleanupTimeout, ReplacesAWorkerThatNothingWaitsFor) {
  OwnPool pool(2, {"ISOPOOL_CLEANUP_TIMEOUT=300ms"});
  const OpenedGate gate;
  const pid_t occupied = closeStreamThatWaits(pool.subject(), gate);
  EXPECT_TRUE(waitUntil([&] { return pool.manager().workersReplaced() == 1; }));
  EXPECT_NE(pool.processOf(0), occupied);
  EXPECT_NE(pool.processOf(1), occupied);
}

TEST(CleanupTimeout, ReplacesASpareThatHangsInMakingAnObject) {
  const std::filesystem::path folder = testFolder() / "hanging-spare";
  std::filesystem::create_directory(folder);
  const OpenedGate gate;
  const auto names = gate.arguments();
  std::ofstream(folder / "loading.py")
      << "log = '" << (folder / "log").string() << "'\narrived = '" << names[0].toStringRef()
      << "'\ngate = '" << names[1].toStringRef() << "'\n";
  gate.open();
  OwnPool pool(1, {"ISOPOOL_CLEANUP_TIMEOUT=100ms", "PYTHONPATH=" + folder.string()});
  const ReplicatedObj object =
      pool.manager().loadPackage(packagePath()).loadPickle("model", "slow_to_load.pkl");
  for (const at::IValue& name : names) std::filesystem::remove(name.toStringRef());
  // The spare takes the worker's place. A new spare is then started, which waits at the gate.
  ASSERT_EQ(::kill(pool.processOf(0), SIGKILL), 0);
  const pid_t spare = gate.arrival();
  EXPECT_TRUE(waitUntil([&] { return ::kill(spare, 0) != 0; })) << "the spare still hangs";
}

class SharedCleanupTimeout : public AttachedManagers {};

TEST_F(SharedCleanupTimeout, HasTheSupervisorReplaceAWorkerThatItsProgramDoesNotWaitFor) {
  serve({});
  const ScopedVariable limit("ISOPOOL_CLEANUP_TIMEOUT=300ms");
  const auto manager = attach();
  const Subject subject(*manager);
  const OpenedGate gate;
  closeStreamThatWaits(subject, gate);
  EXPECT_TRUE(waitUntil([&] { return manager->workersReplaced() > 0; }));
}

TEST_F(SharedCleanupTimeout, HasTheSupervisorReplaceAWorkerThatKeepsACallOnAllWorkersFromEnding) {
  serve({});
  const ScopedVariable limit("ISOPOOL_CLEANUP_TIMEOUT=300ms");
  const auto manager = attach();
  const auto other = attach();
  const Subject subject(*manager);
  const Subject others(*other);
  const OpenedGate gate;
  const pid_t occupied = closeStreamThatWaits(subject, gate);
  EXPECT_NE(answerer(others), occupied)
      << "another program's call waits for the first one's stream";
  for (const at::IValue& each : subject.object().callOnAll({"pid"}, {}, within(kLimit))) {
    EXPECT_NE(each.toInt(), occupied);
  }
}

TEST(CleanupTimeout, LeavesAWorkerAliveThatRunsAStepThatAThreadWaitsFor) {
  OwnPool pool(1, {"ISOPOOL_CLEANUP_TIMEOUT=50ms"});
  const OpenedGate gate;
  RunningStep step(pool.subject(), gate);
  EXPECT_THROW(pool.subject().ask("pid", {}, within(milliseconds(1'000))), DeadlineExceeded);
  gate.open();
  EXPECT_EQ(step.result(), gate.arrival());
  EXPECT_EQ(answerer(pool.subject()), gate.arrival());
}

TEST(CleanupTimeout, IsOffWhereNothingIsKilled) {
  OwnPool pool(1, {"ISOPOOL_CLEANUP_TIMEOUT=50ms", "ISOPOOL_NO_KILL=1"});
  const OpenedGate gate;
  const pid_t occupied = closeStreamThatWaits(pool.subject(), gate);
  PendingCall call = pool.subject().object().callAsync({"pid"});
  EXPECT_FALSE(call.wait_for(std::chrono::seconds(1)));
  gate.open();
  EXPECT_EQ(call.get().toInt(), occupied);
}

TEST(CleanupTimeout, ThatIsNoTimeIsRefused) {
  try {
    const OwnPool pool(1, {"ISOPOOL_CLEANUP_TIMEOUT=soon"});
    FAIL() << "the manager was made";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ISOPOOL_CLEANUP_TIMEOUT=soon"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace isopool::tests
