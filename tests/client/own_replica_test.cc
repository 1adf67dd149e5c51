// SPDX-License-Identifier: BSD-3-Clause
// Sessions with a replica of their own.
#include <signal.h>

#include <vector>

#include "tests/client/attached_managers.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using NoArguments = at::ArrayRef<Obj>;

SessionOptions ownReplica() {
  SessionOptions options;
  options.ownReplica = true;
  return options;
}

at::IValue ask(const InterpreterSession& session, const char* method,
               std::vector<at::IValue> arguments = {}) {
  arguments.insert(arguments.begin(), method);
  return session.self(arguments).toIValue();
}

double weightSum(const InterpreterSession& session) {
  return ask(session, "weight_sum").toDouble();
}

TEST(OwnReplica, HasAttributesThatOnlyItsSessionSees) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  InterpreterSession one = subject.object().acquireSession(ownReplica());
  InterpreterSession two = subject.object().acquireSession(ownReplica());
  InterpreterSession ordinary = subject.object().acquireSession();
  ask(one, "set_mark", {1});
  ask(two, "set_mark", {2});
  ask(ordinary, "set_mark", {3});
  EXPECT_EQ(ask(one, "get_mark").toInt(), 1);
  EXPECT_EQ(ask(two, "get_mark").toInt(), 2);
  EXPECT_EQ(subject.number("get_mark"), 3) << "an ordinary session has the pool's replica";
}

// The weights of all replicas are the same pages of the package until one of them writes.
TEST(OwnReplica, HasTensorsThatOnlyItsSessionSees) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  InterpreterSession one = subject.object().acquireSession(ownReplica());
  InterpreterSession two = subject.object().acquireSession(ownReplica());
  const double sum = weightSum(one);
  ASSERT_NE(sum, 0.0);
  ask(one, "write_weight");
  EXPECT_EQ(weightSum(one), 0.0);
  EXPECT_EQ(weightSum(two), sum);
  EXPECT_EQ(subject.ask("weight_sum").toDouble(), sum);
  EXPECT_EQ(weightSum(subject.object().acquireSession(ownReplica())), sum);
  subject.ask("write_weight");
  EXPECT_EQ(subject.ask("weight_sum").toDouble(), 0.0);
  EXPECT_EQ(weightSum(two), sum);
  EXPECT_EQ(weightSum(subject.object().acquireSession(ownReplica())), sum)
      << "a new one has the weights of the file";
}

TEST(OwnReplica, ThereMayBeMoreThanWorkers) {
  InterpreterManager manager(2);
  const Subject subject(manager);
  std::vector<InterpreterSession> sessions;
  constexpr int kSessions = 12;
  for (int i = 0; i < kSessions; ++i) {
    sessions.push_back(subject.object().acquireSession(ownReplica()));
    ask(sessions.back(), "set_mark", {i});
  }
  for (int i = 0; i < kSessions; ++i) EXPECT_EQ(ask(sessions[i], "get_mark").toInt(), i);
}

TEST(OwnReplica, EndsWithTheLastObjThatRefersToIt) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  const auto alive = [&] {
    return subject
        .ask("run", {"import gc\n"
                     "gc.collect()\n"
                     "result = sum(type(each).__name__ == 'Subject' for each in gc.get_objects())"})
        .toInt();
  };
  const int64_t before = alive();
  std::vector<Obj> kept;
  {
    InterpreterSession session = subject.object().acquireSession(ownReplica());
    EXPECT_EQ(alive(), before + 1);
    kept.push_back(session.self);
  }
  EXPECT_EQ(alive(), before + 1) << "an Obj still refers to it";
  kept.clear();
  EXPECT_TRUE(waitUntil([&] { return alive() == before; }));
}

TEST(OwnReplica, IsLostWithItsWorker) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  const InterpreterSession session = subject.object().acquireSession(ownReplica());
  ASSERT_EQ(::kill(manager.allInstances()[0].processId().value_or(-1), SIGKILL), 0);
  EXPECT_THROW(ask(session, "pid"), WorkerLost);
  EXPECT_GT(ask(subject.object().acquireSession(ownReplica()), "pid").toInt(), 0);
}

TEST(OwnReplica, IsOnTheGivenWorker) {
  InterpreterManager manager(2);
  const Subject subject(manager);
  for (const Interpreter& interpreter : manager.allInstances()) {
    SessionOptions options = ownReplica();
    options.interpreter = &interpreter;
    EXPECT_EQ(ask(subject.object().acquireSession(options), "pid").toInt(),
              interpreter.processId().value_or(-1));
  }
}

TEST(OwnReplica, OfAMovedObjectIsRefused) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  InterpreterSession session = subject.object().acquireSession();
  const ReplicatedObj moved = session.createMovable(session.fromIValue(at::ones({4})));
  EXPECT_THROW(moved.acquireSession(ownReplica()), Error);
}

TEST(OwnReplica, ThatDoesNotLoadInTimeEndsItsWorkerAndNotTheCaller) {
  InterpreterManager manager(1);
  const Gate gate;
  const auto names = gate.arguments();
  manager.registerModuleSource("loading", "log = '" + names[0].toStringRef() +
                                              ".log'\narrived = '" + names[0].toStringRef() +
                                              "'\ngate = '" + names[1].toStringRef() + "'\n");
  gate.open();
  const ReplicatedObj object =
      manager.loadPackage(packagePath()).loadPickle("model", "slow_to_load.pkl");
  for (const at::IValue& name : names) std::filesystem::remove(name.toStringRef());
  const pid_t worker = manager.allInstances()[0].processId().value_or(-1);
  CallOptions soon;
  soon.deadline = milliseconds(200);
  EXPECT_THROW(object.acquireSession(ownReplica(), soon), DeadlineExceeded);
  EXPECT_EQ(gate.arrival(), worker);
  EXPECT_TRUE(waitUntilDead(worker, kPatience));
}

class SharedOwnReplica : public AttachedManagers {};

TEST_F(SharedOwnReplica, TwoProgramsDoNotSeeEachOthers) {
  serve({"--workers", "1"});
  const auto one = attach(1);
  const auto two = attach(1);
  const Subject ofOne(*one);
  const Subject ofTwo(*two);
  const InterpreterSession first = ofOne.object().acquireSession(ownReplica());
  const InterpreterSession second = ofTwo.object().acquireSession(ownReplica());
  const double sum = weightSum(second);
  ask(first, "write_weight");
  EXPECT_EQ(weightSum(first), 0.0);
  EXPECT_EQ(weightSum(second), sum);
}

}  // namespace
}  // namespace isopool::tests
