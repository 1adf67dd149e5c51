// SPDX-License-Identifier: BSD-3-Clause
// Interpreters without a manager, ends of sessions, methods as objects, and a load balancer that a
// program uses by itself.
#include <signal.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <type_traits>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using NoArguments = at::ArrayRef<Obj>;

static_assert(std::is_move_constructible_v<Interpreter>);
static_assert(!std::is_copy_constructible_v<Interpreter>);
static_assert(!std::is_move_assignable_v<Interpreter>);

int64_t processIn(InterpreterSession session) {
  return session.global("os", "getpid")(NoArguments()).toIValue().toInt();
}

/// The text of the Error with which `use` is refused.
std::string refusalOf(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "it was not refused";
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- an Interpreter of its own -----------------------------------------------------------------

TEST(Interpreter, WithoutAManagerIsAWorkerOfItsOwn) {
  sharedManager();
  const Interpreter interpreter(std::make_shared<NoopEnvironment>());
  InterpreterSession session = interpreter.acquireSession();
  const int64_t process = session.global("os", "getpid")(NoArguments()).toIValue().toInt();
  EXPECT_EQ(process, interpreter.processId());
  EXPECT_NE(process, sharedManager().allInstances()[0].processId());
  EXPECT_NE(process, sharedManager().allInstances()[1].processId());
  EXPECT_EQ(session.global("torch.version", "interp").toIValue().toInt(), 0);
  const at::Tensor x = at::arange(1000);
  EXPECT_TRUE(session.global("torch", "add")({x, x}).toIValue().toTensor().equal(x + x));
  EXPECT_THROW(session.global("GetArgumentNamesModule", "getArgumentNames"), RemoteError);
}

TEST(Interpreter, WithoutAnEnvironmentHasTheLocalPython) {
  sharedManager();
  const Interpreter interpreter(std::shared_ptr<Environment>{});
  EXPECT_EQ(interpreter.acquireSession().global("math", "floor")({2.5}).toIValue().toInt(), 2);
}

TEST(Interpreter, BesideAManagerSeesItsModules) {
  InterpreterManager manager(1);
  manager.registerModuleSource("of_the_manager", "ANSWER = 5\n");
  const Interpreter interpreter(&manager, std::make_shared<NoopEnvironment>());
  InterpreterSession session = interpreter.acquireSession();
  EXPECT_EQ(session.global("of_the_manager", "ANSWER").toIValue().toInt(), 5);
  manager.registerModuleSource("later", "ANSWER = 6\n");
  EXPECT_EQ(session.global("later", "ANSWER").toIValue().toInt(), 6);
  EXPECT_NE(interpreter.processId(), manager.allInstances()[0].processId());
  EXPECT_EQ(manager.allInstances().size(), 1u);
}

TEST(Interpreter, IsReplacedWhenItDies) {
  sharedManager();
  const Interpreter interpreter(std::make_shared<NoopEnvironment>());
  const int64_t victim = processIn(interpreter.acquireSession());
  ASSERT_EQ(::kill(static_cast<pid_t>(victim), SIGKILL), 0);
  ASSERT_TRUE(waitUntilDead(static_cast<pid_t>(victim), kPatience));
  EXPECT_NE(processIn(interpreter.acquireSession()), victim);
}

TEST(Interpreter, EndsItsWorkerAndItsSessionsWithItself) {
  sharedManager();
  auto interpreter = std::make_optional<Interpreter>(std::make_shared<NoopEnvironment>());
  const Interpreter moved(std::move(*interpreter));
  const auto process = static_cast<pid_t>(processIn(moved.acquireSession()));
  EXPECT_TRUE(contains(refusalOf([&] { interpreter->acquireSession(); }), "moved from"));
  EXPECT_TRUE(contains(refusalOf([&] { interpreter->processId(); }), "moved from"));
  interpreter.reset();
  EXPECT_EQ(processIn(moved.acquireSession()), process)
      << "the end of a moved-from object has no effect";

  std::optional<Interpreter> last(std::make_shared<NoopEnvironment>());
  InterpreterSession session = last->acquireSession();
  const Obj value = session.fromIValue(3);
  const auto worker = static_cast<pid_t>(*last->processId());
  last.reset();
  EXPECT_TRUE(waitUntilDead(worker, kPatience));
  EXPECT_TRUE(contains(refusalOf([&] { session.global("math", "pi"); }), "Interpreter"));
  EXPECT_TRUE(contains(refusalOf([&] { value.toIValue(); }), "gone"));
}

TEST(Interpreter, WithoutAManagerIsRefusedByObjectsOfAManager) {
  const Interpreter interpreter(std::make_shared<NoopEnvironment>());
  EXPECT_TRUE(contains(refusalOf([&] { sharedSubject().object().acquireSession(&interpreter); }),
                       "manager"));
  InterpreterSession session = interpreter.acquireSession();
  EXPECT_TRUE(contains(refusalOf([&] { sharedSubject().object().toObj(&session); }), "manager"));
  InterpreterSession other = sharedManager().acquireOne();
  EXPECT_THROW(other.global("builtins", "len")({session.fromIValue("text")}), Error);
}

TEST(Interpreter, ThatCannotStartThrows) {
  class Failing : public Environment {
   public:
    void configureInterpreter(Interpreter* interpreter) override {
      interpreter->acquireSession().global("isopool_no_such_module", "x");
    }
  };
  EXPECT_THROW(Interpreter(std::make_shared<Failing>()), RemoteError);
}

// ---- a session's end -------------------------------------------------------------------------

/// A session class of a program's own.
class WatchedSession : public InterpreterSession {
 public:
  explicit WatchedSession(InterpreterSession&& session) : InterpreterSession(std::move(session)) {}
  bool watch(std::function<void()> callback) {
    return attachDeconstructorCallback(std::move(callback));
  }
};

TEST(Session, CallsItsCallbackOnceAtItsEnd) {
  int ends = 0;
  {
    WatchedSession session(sharedManager().acquireOne());
    EXPECT_TRUE(session.watch([&] { ++ends; }));
    EXPECT_FALSE(session.watch([&] { ends += 100; })) << "one is attached already";
    session.global("math", "pi");
    EXPECT_EQ(ends, 0);
  }
  EXPECT_EQ(ends, 1);
}

TEST(Session, ThatWasMovedFromCallsNothing) {
  int ends = 0;
  {
    std::optional<WatchedSession> session(std::in_place, sharedManager().acquireOne());
    EXPECT_TRUE(session->watch([&] { ++ends; }));
    const InterpreterSession moved(std::move(*session));
    session.reset();
    EXPECT_EQ(ends, 0);
  }
  EXPECT_EQ(ends, 1);
}

TEST(Session, EndsAlsoWhenItsCallbackThrows) {
  {
    WatchedSession session(sharedManager().acquireOne());
    EXPECT_TRUE(session.watch([] { throw std::runtime_error("not now"); }));
  }
  EXPECT_GT(processIn(sharedManager().acquireOne()), 0);
}

// ---- methods ---------------------------------------------------------------------------------

TEST(Method, IsCalledWithPositionalAndNamedArguments) {
  const PythonMethodWrapper method(sharedSubject().object(), "sums");
  EXPECT_EQ(method.name(), "sums");
  const at::Tensor x = at::ones({4});
  EXPECT_EQ(method({x}).toDouble(), 4);
  EXPECT_EQ(method({x}, {{"scale", 2.0}, {"shift", 1.0}}).toDouble(), 9);
}

TEST(Method, IsAnIMethodThatKnowsItsArgumentsNames) {
  const std::unique_ptr<torch::IMethod> sums =
      std::make_unique<PythonMethodWrapper>(sharedSubject().object(), "sums");
  EXPECT_EQ(sums->getArgumentNames(), (std::vector<std::string>{"x", "scale", "shift"}));
  EXPECT_EQ((*sums)({at::ones({2})}).toDouble(), 2);
  const PythonMethodWrapper none(sharedSubject().object(), "nothing");
  EXPECT_TRUE(none.getArgumentNames().empty());
  EXPECT_TRUE(none({}).isNone());
}

TEST(Method, ThatDoesNotExistOrFailsIsAPythonError) {
  const PythonMethodWrapper missing(sharedSubject().object(), "no_such_method");
  EXPECT_THROW(missing({}), RemoteError);
  EXPECT_THROW(missing.getArgumentNames(), RemoteError);
  EXPECT_THROW(PythonMethodWrapper(sharedSubject().object(), "fail")({1}), RemoteError);
  EXPECT_THROW(PythonMethodWrapper(ReplicatedObj(), "sums")({}), Error);
}

TEST(Method, IsCalledFromManyThreads) {
  const PythonMethodWrapper method(sharedSubject().object(), "sums");
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 20; ++k) {
        if (method({at::ones({3})}, {{"shift", double(i)}}).toDouble() == 3 + i) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

// ---- resources of a package --------------------------------------------------------------------

TEST(Package, GivesOutItsTextsAndBytes) {
  Package package = sharedManager().loadPackage(packagePath("resources.pt"));
  EXPECT_EQ(package.loadText("notes", "greeting.txt"), "good morning, \u00e9\n");
  EXPECT_EQ(package.loadBinary("notes", "all.bin").size(), 256u);
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(
        static_cast<unsigned char>(package.loadBinary("notes", "all.bin")[static_cast<size_t>(i)]),
        i);
  }
  EXPECT_EQ(package.loadBinary("notes", "empty.bin"), "");
  EXPECT_EQ(package.loadBinary("notes", "large.bin"), std::string(3'000'000, 'x'));
  EXPECT_THROW(package.loadText("notes", "missing.txt"), RemoteError);
  EXPECT_THROW(package.loadBinary("no_such_package", "all.bin"), RemoteError);
}

// ---- a balancer --------------------------------------------------------------------------------

TEST(LoadBalancer, ReturnsTheSameIdleResourceToAThread) {
  LoadBalancer balancer(3);
  const int first = balancer.acquire();
  balancer.free(first);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(balancer.acquire(), first);
    balancer.free(first);
  }
  const int held = balancer.acquire();
  EXPECT_EQ(held, first);
  EXPECT_NE(balancer.acquire(), held);
}

TEST(LoadBalancer, DealsOutIdleOnesFirstThenTheLeastUsed) {
  LoadBalancer balancer(3);
  std::multiset<int> dealt{balancer.acquire(), balancer.acquire(), balancer.acquire()};
  EXPECT_EQ(dealt, (std::multiset<int>{0, 1, 2}));
  dealt.insert({balancer.acquire(), balancer.acquire(), balancer.acquire()});
  EXPECT_EQ(dealt, (std::multiset<int>{0, 0, 1, 1, 2, 2}));
  balancer.free(1);
  EXPECT_EQ(balancer.acquire(), 1) << "the one with the fewest users";
}

TEST(LoadBalancer, KeepsToItsLimitUntilThereIsAnother) {
  LoadBalancer balancer(4);
  balancer.setResourceLimit(1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(balancer.acquire(), 0);
  balancer.setResourceLimit(4);
  std::set<int> dealt{balancer.acquire(), balancer.acquire(), balancer.acquire()};
  EXPECT_EQ(dealt, (std::set<int>{1, 2, 3}));
}

TEST(LoadBalancer, RefusesWhatDoesNotExist) {
  EXPECT_THROW(LoadBalancer(0), Error);
  LoadBalancer balancer(2);
  EXPECT_THROW(balancer.setResourceLimit(0), Error);
  EXPECT_THROW(balancer.setResourceLimit(3), Error);
  EXPECT_THROW(balancer.free(-1), Error);
  EXPECT_THROW(balancer.free(2), Error);
  EXPECT_THROW(balancer.free(0), Error) << "it has no user";
}

TEST(LoadBalancer, CountsRightWithManyThreads) {
  LoadBalancer balancer(3);
  std::atomic<int> inUse[3] = {};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 2000; ++k) {
        const int mine = balancer.acquire();
        const int users = ++inUse[mine];
        int known = most;
        while (users > known && !most.compare_exchange_weak(known, users)) {
        }
        --inUse[mine];
        balancer.free(mine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Six users of three resources: no resource ever has more than two users.
  EXPECT_LE(most, 2);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(balancer.free(i), Error) << "everything is free again";
}

}  // namespace
}  // namespace isopool::tests
