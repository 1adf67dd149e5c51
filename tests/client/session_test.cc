// SPDX-License-Identifier: BSD-3-Clause
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using Arguments = at::ArrayRef<Obj>;

InterpreterSession subjectSession(size_t slot = 0) {
  return sharedSubject().object().acquireSession(&sharedManager().allInstances()[slot]);
}

TEST(Session, GlobalReachesAttributesOfModulesAndImportsThem) {
  InterpreterSession session = sharedManager().acquireOne();
  EXPECT_EQ(session.global("math", "hypot")({3.0, 4.0}).toIValue().toDouble(), 5.0);
  EXPECT_EQ(session.global("os.path", "join")({"a", "b"}).toIValue().toStringRef(), "a/b");
  const Obj upper = session.global("string", "ascii_uppercase");
  EXPECT_EQ(upper.toIValue().toStringRef(), "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

TEST(Session, GlobalOfWhatIsNotThereIsAPythonError) {
  InterpreterSession session = sharedManager().acquireOne();
  try {
    session.global("isopool_no_such_module", "x");
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "ModuleNotFoundError");
    EXPECT_NE(error.message().find("isopool_no_such_module"), std::string::npos);
  }
  try {
    session.global("math", "no_such_function");
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "AttributeError");
  }
}

TEST(Session, ValuesBecomeObjectsAndComeBack) {
  InterpreterSession session = sharedManager().acquireOne();
  const at::Tensor x = at::arange(1000);
  const Obj object = session.fromIValue(x);
  EXPECT_TRUE(object.toIValue().toTensor().equal(x));
  EXPECT_EQ(object.attr("ndim").toIValue().toInt(), 1);
  EXPECT_EQ(session.fromIValue("text").attr("upper")(Arguments()).toIValue().toStringRef(), "TEXT");
  EXPECT_TRUE(session.fromIValue(at::IValue()).toIValue().isNone());
}

TEST(Session, ObjectsAreArgumentsOfObjects) {
  InterpreterSession session = sharedManager().acquireOne();
  const Obj one = session.fromIValue(at::full({500}, 1));
  const Obj two = session.fromIValue(at::full({500}, 2));
  const Obj sum = session.global("operator", "add")({one, two});
  EXPECT_TRUE(sum.toIValue().toTensor().eq(3).all().item<bool>());
  EXPECT_TRUE(session.global("operator", "is_")({one, one}).toIValue().toBool());
}

TEST(Session, ObjectsTakeNamedArguments) {
  InterpreterSession session = sharedManager().acquireOne();
  const Obj number = session.global("builtins", "int");
  EXPECT_EQ(number.callKwargs({"ff"}, {{"base", 16}}).toIValue().toInt(), 255);
  const Obj dict = session.global("builtins", "dict");
  EXPECT_EQ(dict.callKwargs({{"a", 1}}).attr("__getitem__")({"a"}).toIValue().toInt(), 1);
}

TEST(Session, SelfIsWhatTheSessionIsOf) {
  EXPECT_THROW(sharedManager().acquireOne().self.toIValue(), Error);

  Package package = sharedManager().loadPackage(packagePath());
  InterpreterSession ofPackage = package.acquireSession();
  const Obj loaded = ofPackage.self.attr("load_pickle")({"model", "model.pkl"});
  EXPECT_EQ(loaded({"describe", 3}).toIValue().toStringRef(), "int 3");

  InterpreterSession ofObject = subjectSession();
  EXPECT_EQ(ofObject.self({"describe", true}).toIValue().toStringRef(), "bool True");
  EXPECT_EQ(ofObject.self.attr("weight").attr("numel")(Arguments()).toIValue().toInt(), 65536);
}

TEST(Session, OnAGivenInterpreterRunsInThatProcess) {
  const auto workers = sharedManager().allInstances();
  ASSERT_EQ(workers.size(), 2u);
  for (size_t i = 0; i < workers.size(); ++i) {
    InterpreterSession session = subjectSession(i);
    EXPECT_EQ(session.self({"pid"}).toIValue().toInt(), workers[i].processId());
    EXPECT_EQ(session.self({"slot"}).toIValue().toInt(), static_cast<int64_t>(i));
    InterpreterSession direct = workers[i].acquireSession();
    EXPECT_EQ(direct.global("os", "getpid")(Arguments()).toIValue().toInt(),
              workers[i].processId());
  }
  EXPECT_NE(workers[0].processId(), workers[1].processId());
}

TEST(Session, OnAnotherManagersInterpreterIsRefused) {
  InterpreterManager other(1);
  EXPECT_THROW(sharedSubject().object().acquireSession(&other.allInstances()[0]), Error);
}

TEST(Session, SeveralOverlapOnOneWorker) {
  InterpreterManager manager(1);
  InterpreterSession one = manager.acquireOne();
  InterpreterSession two = manager.acquireOne();
  const Obj object = one.fromIValue(41);
  EXPECT_EQ(two.global("operator", "add")({object, two.fromIValue(1)}).toIValue().toInt(), 42);
  // Calls of the pool are served beside the sessions.
  EXPECT_GT(Subject(manager).number("pid"), 0);
}

TEST(Session, IsUsedFromOtherThreads) {
  InterpreterSession session = subjectSession();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 20; ++k) {
        const Obj value = session.fromIValue(i * 100 + k);
        if (value.toIValue().toInt() == i * 100 + k) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

TEST(Session, ThatWasMovedFromThrows) {
  InterpreterSession session = sharedManager().acquireOne();
  const InterpreterSession other(std::move(session));
  EXPECT_THROW(session.global("math", "pi"), Error);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(session.fromIValue(1), Error);
}

TEST(Session, ObjectsOutliveIt) {
  Obj object;
  {
    InterpreterSession session = sharedManager().acquireOne();
    object = session.fromIValue("still here");
  }
  EXPECT_EQ(object.toIValue().toStringRef(), "still here");
}

TEST(Session, ADefaultObjectThrowsOnEveryUse) {
  const Obj nothing;
  EXPECT_THROW(nothing.toIValue(), Error);
  EXPECT_THROW(nothing(Arguments()), Error);
  EXPECT_THROW(nothing(at::ArrayRef<at::IValue>()), Error);
  EXPECT_THROW(nothing.callKwargs({}), Error);
  EXPECT_THROW(nothing.callKwargs({}, {}), Error);
  EXPECT_THROW(nothing.hasattr("x"), Error);
  EXPECT_THROW(nothing.attr("x"), Error);
  InterpreterSession session = sharedManager().acquireOne();
  EXPECT_THROW(session.global("builtins", "print")({nothing}), Error);
}

TEST(Session, AnObjectOfAnotherWorkerIsRefused) {
  InterpreterSession one = subjectSession(0);
  InterpreterSession two = subjectSession(1);
  try {
    one.global("operator", "add")({one.fromIValue(1), two.fromIValue(1)});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("toIValue()"), std::string::npos) << error.what();
  }
}

TEST(Session, HasattrIsFalseForEveryException) {
  InterpreterSession session = subjectSession();
  EXPECT_TRUE(session.self.hasattr("weight"));
  EXPECT_FALSE(session.self.hasattr("no_such_thing"));
  EXPECT_FALSE(session.self.hasattr("sour"));
  try {
    session.self.attr("sour");
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "KeyError");
  }
}

TEST(Session, UnusedObjectsAreReleased) {
  InterpreterSession session = subjectSession();
  const auto alive = [&] { return session.self({"tracked_alive"}).toIValue().toInt(); };
  {
    std::vector<Obj> held;
    for (int i = 0; i < 1000; ++i) held.push_back(session.self({"tracked"}));
    const std::vector<Obj> copies(held);
    EXPECT_EQ(alive(), 1000);
    held.clear();
    EXPECT_EQ(alive(), 1000) << "copies share an object";
  }
  EXPECT_TRUE(waitUntil([&] { return alive() == 0; })) << alive();
}

TEST(Session, ResultsOfStepsAreDetachedFromTheGraph) {
  InterpreterSession session = subjectSession();
  EXPECT_FALSE(session.self.attr("weight").toIValue().toTensor().requires_grad());
}

// ---- after the manager's end -----------------------------------------------------------------

void expectManagerGone(const std::function<void()>& use) {
  try {
    use();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("InterpreterManager"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("gone"), std::string::npos) << error.what();
  }
}

TEST(Session, ObjectsOfADestroyedManagerThrow) {
  auto manager = std::make_unique<InterpreterManager>(1);
  Package package = manager->loadPackage(packagePath());
  const ReplicatedObj object = package.loadPickle("model", "model.pkl");
  InterpreterSession session = object.acquireSession();
  const Obj value = session.fromIValue(3);
  manager.reset();
  expectManagerGone([&] { object({"pid"}); });
  expectManagerGone([&] { (void)object.hasattr("x"); });
  expectManagerGone([&] { object.acquireSession(); });
  expectManagerGone([&] { package.loadPickle("model", "model.pkl"); });
  expectManagerGone([&] { package.acquireSession(); });
  expectManagerGone([&] { session.global("math", "pi"); });
  expectManagerGone([&] { session.fromIValue(1); });
  expectManagerGone([&] { value.toIValue(); });
  expectManagerGone([&] { value.attr("real"); });
}

}  // namespace
}  // namespace isopool::tests
