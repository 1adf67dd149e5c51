// SPDX-License-Identifier: BSD-3-Clause
// Deadlines of everything besides calls of a ReplicatedObj: steps of sessions, Objs, streams,
// loading.
#include <functional>
#include <future>
#include <optional>
#include <ostream>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

// By how much a deadline may be exceeded on a busy machine.
constexpr milliseconds kSlack(2000);

CallOptions within(milliseconds time) {
  CallOptions options;
  options.deadline = time;
  return options;
}

CallOptions runningFor(milliseconds time) {
  CallOptions options;
  options.runTime = time;
  return options;
}

// Every name blocks when it is used, until the gate opens.
const char* const kBlocking = R"(
import os
import sys
import time

def block():
    with open(ARRIVED + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(ARRIVED + ".new", ARRIVED)
    while not os.path.exists(OPEN):
        time.sleep(0.001)
    return 1

class Blocking:
    @property
    def attribute(self):
        return block()
    def __call__(self):
        return block()
    def __iter__(self):
        block()
        return iter(())
    def __reduce__(self):
        block()
        return (Blocking, ())

def items():
    yield 0
    block()
    yield 1

def cleans_up():
    try:
        yield 0
        yield 1
    finally:
        block()

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "isopool_no_such_module":
            block()

def install_finder():
    sys.meta_path.insert(0, Finder())
)";

class StepDeadline : public ::testing::Test {
 protected:
  StepDeadline() {
    sharedManager();
    const auto names = gate_.arguments();
    const std::string files =
        "ARRIVED = '" + names[0].toStringRef() + "'\nOPEN = '" + names[1].toStringRef() + "'\n";
    manager_.registerModuleSource("blocking", files + kBlocking);
    manager_.registerModuleSource("blocks_when_imported", "import blocking\nblocking.block()\n");
  }

  /// A call that occupies the worker until the gate opens.
  std::future<Obj> occupy(InterpreterSession& session) {
    auto occupied = std::async(std::launch::async, [waiting = session.global("blocking", "block")] {
      return waiting(at::ArrayRef<Obj>());
    });
    EXPECT_EQ(gate_.arrival(), process());
    return occupied;
  }
  pid_t process() { return manager_.allInstances()[0].processId().value_or(-1); }
  /// Loading slow_to_load.pkl waits at the gate.
  void registerLoading() {
    const auto names = gate_.arguments();
    manager_.registerModuleSource("loading", "log = '" + names[0].toStringRef() +
                                                 ".log'\narrived = '" + names[0].toStringRef() +
                                                 "'\ngate = '" + names[1].toStringRef() + "'\n");
  }

  /// Expects `use` to throw DeadlineExceeded in time, with this value of started().
  static void expectOverdue(const std::function<void()>& use, bool started) {
    const auto began = Clock::now();
    try {
      use();
      ADD_FAILURE() << "the deadline did not pass";
    } catch (const DeadlineExceeded& error) {
      EXPECT_EQ(error.started(), started) << error.what();
    }
    EXPECT_LT(Clock::now() - began, milliseconds(200) + kSlack);
  }

  const Gate gate_;
  InterpreterManager manager_{1};
};

/// An operation that runs Python code. `prepare` runs before, without a deadline.
struct Use {
  const char* name;
  std::function<std::function<void(const CallOptions&)>(InterpreterManager&, InterpreterSession&)>
      prepare;
};

void PrintTo(const Use& use, std::ostream* out) { *out << use.name; }

Obj blockingObj(InterpreterSession& session) {
  return session.global("blocking", "Blocking")(at::ArrayRef<Obj>());
}

class EachOperation : public StepDeadline, public ::testing::WithParamInterface<Use> {};

TEST_P(EachOperation, ThatRunsPastItsDeadlineEndsAndItsWorkerIsReplaced) {
  const pid_t worker = process();
  {
    InterpreterSession session = manager_.acquireOne();
    const auto use = GetParam().prepare(manager_, session);
    expectOverdue([&] { use(within(milliseconds(200))); }, /*started=*/true);
    EXPECT_EQ(gate_.arrival(), worker);
    EXPECT_TRUE(waitUntilDead(worker, kPatience));
    EXPECT_THROW(session.global("os", "getpid"), WorkerLost);
  }
  const int64_t now =
      manager_.acquireOne().global("os", "getpid")(at::ArrayRef<Obj>()).toIValue().toInt();
  EXPECT_NE(now, worker);
}

TEST_F(StepDeadline, TheRunTimeOfAStepOfAnObjDoesNotCountItsWait) {
  const pid_t worker = process();
  InterpreterSession session = manager_.acquireOne();
  const Obj object = blockingObj(session);
  InterpreterSession other = manager_.acquireOne();
  auto occupied = occupy(other);
  auto limitedStep = std::async(std::launch::async,
                                [&] { return object.call({}, {}, runningFor(milliseconds(200))); });
  EXPECT_EQ(limitedStep.wait_for(milliseconds(400)), std::future_status::timeout);
  gate_.open();
  occupied.get();
  EXPECT_EQ(limitedStep.get().toIValue().toInt(), 1);
  EXPECT_EQ(process(), worker);
}

TEST_F(StepDeadline, TheRunTimeOfAStepOfAnObjLimitsIt) {
  const pid_t worker = process();
  InterpreterSession session = manager_.acquireOne();
  const Obj object = blockingObj(session);
  expectOverdue([&] { (void)object.call({}, {}, runningFor(milliseconds(200))); },
                /*started=*/true);
  EXPECT_EQ(gate_.arrival(), worker);
  EXPECT_TRUE(waitUntilDead(worker, kPatience));
}

TEST_P(EachOperation, ThatWaitsPastItsDeadlineIsWithdrawnAndTheWorkerLives) {
  const pid_t worker = process();
  InterpreterSession session = manager_.acquireOne();
  const auto use = GetParam().prepare(manager_, session);
  InterpreterSession other = manager_.acquireOne();
  auto occupied = occupy(other);
  expectOverdue([&] { use(within(milliseconds(200))); }, /*started=*/false);
  gate_.open();
  occupied.get();
  EXPECT_EQ(other.global("os", "getpid")(at::ArrayRef<Obj>()).toIValue().toInt(), worker);
}

INSTANTIATE_TEST_SUITE_P(
    Operations, EachOperation,
    ::testing::Values(Use{"Global",
                          [](InterpreterManager&, InterpreterSession& session) {
                            return [&](const CallOptions& options) {
                              session.global("blocks_when_imported", "blocking", options);
                            };
                          }},
                      Use{"ObjCall",
                          [](InterpreterManager&, InterpreterSession& session) {
                            return [object = blockingObj(session)](const CallOptions& options) {
                              (void)object.call({}, {}, options);
                            };
                          }},
                      Use{"Attribute",
                          [](InterpreterManager&, InterpreterSession& session) {
                            return [object = blockingObj(session)](const CallOptions& options) {
                              object.attr("attribute", options);
                            };
                          }},
                      Use{"HasAttribute",
                          [](InterpreterManager&, InterpreterSession& session) {
                            return [object = blockingObj(session)](const CallOptions& options) {
                              object.hasattr("attribute", options);
                            };
                          }},
                      Use{"CreateMovable",
                          [](InterpreterManager&, InterpreterSession& session) {
                            return [&, object = blockingObj(session)](const CallOptions& options) {
                              session.createMovable(object, options);
                            };
                          }},
                      Use{"StreamOfAnObj",
                          [](InterpreterManager&, InterpreterSession& session) {
                            return [object = blockingObj(session)](const CallOptions& options) {
                              ResultStream(object, options).next();
                            };
                          }},
                      Use{"StreamItem",
                          [](InterpreterManager&, InterpreterSession& session) {
                            const Obj items =
                                session.global("blocking", "items")(at::ArrayRef<Obj>());
                            return [items](const CallOptions& options) {
                              ResultStream stream(items, options);
                              stream.next();
                              stream.next();
                            };
                          }},
                      Use{"StreamClose",
                          [](InterpreterManager&, InterpreterSession& session) {
                            const Obj items =
                                session.global("blocking", "cleans_up")(at::ArrayRef<Obj>());
                            auto stream = std::make_shared<ResultStream>(items);
                            stream->next();
                            return [stream](const CallOptions& options) {
                              stream->closeAndWait(options);
                            };
                          }},
                      Use{"CallOnAll",
                          [](InterpreterManager& manager, InterpreterSession&) {
                            return [&](const CallOptions& options) {
                              manager.callOnAll("blocking", "block", {}, {}, options);
                            };
                          }},
                      Use{"LoadPackage",
                          [](InterpreterManager& manager, InterpreterSession& session) {
                            session.global("blocking", "install_finder")(at::ArrayRef<Obj>());
                            return [&](const CallOptions& options) {
                              manager.loadPackage(packagePath("extern.pt"), options);
                            };
                          }}),
    [](const auto& use) { return std::string(use.param.name); });

TEST_F(StepDeadline, OfAPickleThatNeverLoadsFreesTheCallerAndTheWorkerIsReplaced) {
  const pid_t worker = process();
  registerLoading();
  Package package = manager_.loadPackage(packagePath());
  expectOverdue([&] { package.loadPickle("model", "slow_to_load.pkl", within(milliseconds(200))); },
                /*started=*/true);
  EXPECT_EQ(gate_.arrival(), worker);
  EXPECT_TRUE(waitUntilDead(worker, kPatience));
  EXPECT_NE(package.loadPickle("model", "model.pkl")({"pid"}).toInt(), worker);
}

TEST_F(StepDeadline, OfTextsOfAPackageHoldsForAllStepsTogether) {
  Package package = manager_.loadPackage(packagePath("resources.pt"));
  EXPECT_EQ(package.loadText("notes", "greeting.txt", within(kPatience)), "good morning, \u00e9\n");
  EXPECT_EQ(package.loadBinary("notes", "all.bin", within(kPatience)).size(), 256u);
  expectOverdue([&] { package.loadText("notes", "greeting.txt", within(milliseconds(0))); },
                /*started=*/false);
}

TEST_F(StepDeadline, OfValuesChangesNothingIfItIsFarAway) {
  InterpreterSession session = manager_.acquireOne(within(kPatience));
  const Obj text = session.fromIValue("text", within(kPatience));
  EXPECT_EQ(text.toIValue(within(kPatience)).toStringRef(), "text");
  EXPECT_EQ(text.toIValuePermissive(within(kPatience)).toStringRef(), "text");
  CallOptions permissive;
  permissive.permissive = true;
  const Obj mixed = session.global("builtins", "dict")(at::ArrayRef<Obj>());
  EXPECT_THROW(mixed.toIValue(), Error);
  EXPECT_TRUE(mixed.toIValue(permissive).isGenericDict());
}

TEST_F(StepDeadline, OfASessionWithAColdObjectLeavesTheWorkerLoading) {
  const pid_t worker = process();
  registerLoading();
  gate_.open();
  ReplicatedObj object =
      manager_.loadPackage(packagePath()).loadPickle("model", "slow_to_load.pkl");
  object.unload();
  for (const at::IValue& name : gate_.arguments()) std::filesystem::remove(name.toStringRef());
  expectOverdue([&] { object.acquireSession(nullptr, within(milliseconds(200))); },
                /*started=*/false);
  EXPECT_EQ(gate_.arrival(), worker);
  gate_.open();
  InterpreterSession session = object.acquireSession();
  EXPECT_EQ(
      object.toObj(&session, within(kPatience)).call({}, {}, within(kPatience)).toIValue().toInt(),
      worker);
}

}  // namespace
}  // namespace isopool::tests
