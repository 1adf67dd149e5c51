// SPDX-License-Identifier: BSD-3-Clause
// Uses of objects that need something which is gone, never existed, or is being replaced.
#include <signal.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using NoArguments = at::ArrayRef<Obj>;

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

TEST(Lifetime, AnInterpreterOfADestroyedManagerThrows) {
  sharedManager();
  auto manager = std::make_unique<InterpreterManager>(2);
  const Subject subject(*manager);
  const Interpreter* interpreter = &manager->allInstances()[1];
  const InterpreterSession session = interpreter->acquireSession();
  manager.reset();
  EXPECT_TRUE(contains(refusalOf([&] { interpreter->acquireSession(); }), "gone"));
  EXPECT_EQ(interpreter->processId(), std::nullopt);
  EXPECT_TRUE(contains(refusalOf([&] { subject.object().acquireSession(interpreter); }), "gone"));
  ReplicatedObj object = subject.object();
  EXPECT_TRUE(contains(refusalOf([&] { object.unload(interpreter); }), "gone"));
  EXPECT_TRUE(contains(refusalOf([&] { object.unload(); }), "gone"));
}

TEST(Lifetime, ASessionThatWaitsForAReplacementEndsWithItsManager) {
  OwnPool pool(1);
  const pid_t supervisor = pool.tree().supervisor();
  const Interpreter* interpreter = &pool.manager().allInstances()[0];
  const pid_t worker = pool.processOf(0);
  ASSERT_EQ(::kill(supervisor, SIGSTOP), 0);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  auto waiting = std::async(std::launch::async, [&] {
    return refusalOf([&] { pool.subject().object().acquireSession(interpreter); });
  });
  EXPECT_TRUE(waitUntil([&] { return !interpreter->processId(); }));
  pool.endManager();
  ASSERT_EQ(waiting.wait_for(kPatience), std::future_status::ready) << "it hangs";
  EXPECT_TRUE(contains(waiting.get(), "gone"));
  ::kill(supervisor, SIGCONT);
}

TEST(Lifetime, ANullReplicatedObjThrowsOnEveryUse) {
  ReplicatedObj nothing;
  InterpreterSession session = sharedManager().acquireOne();
  EXPECT_THROW(nothing({1}), Error);
  EXPECT_THROW((void)nothing.callKwargs({}), Error);
  EXPECT_THROW((void)nothing.callKwargs({}, {}), Error);
  EXPECT_THROW((void)nothing.call({}, {}, {}), Error);
  EXPECT_THROW((void)nothing.hasattr("x"), Error);
  EXPECT_THROW(nothing.acquireSession(), Error);
  EXPECT_THROW(nothing.acquireSession(&sharedManager().allInstances()[0]), Error);
  EXPECT_THROW(nothing.toObj(&session), Error);
  EXPECT_THROW(nothing.unload(), Error);
  const ReplicatedObj copy(nothing);
  EXPECT_THROW(copy({1}), Error);
}

TEST(Lifetime, ASessionThatWasMovedFromThrowsOnEveryUse) {
  InterpreterSession session = sharedSubject().object().acquireSession();
  const Obj value = session.fromIValue(3);
  const InterpreterSession other(std::move(session));
  // NOLINTBEGIN(bugprone-use-after-move)
  EXPECT_THROW(session.global("math", "pi"), Error);
  EXPECT_THROW(session.fromIValue(1), Error);
  EXPECT_THROW((void)session.isOwner(value), Error);
  EXPECT_THROW(session.self.toIValue(), Error);
  EXPECT_THROW(sharedSubject().object().toObj(&session), Error);
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_TRUE(other.isOwner(value));
  EXPECT_TRUE(other.self.hasattr("weight"));
}

TEST(Lifetime, EverythingOfASessionOutlivesIt) {
  Obj self;
  Obj callee;
  {
    InterpreterSession session = sharedSubject().object().acquireSession();
    self = session.self;
    callee = session.global("operator", "add");
  }
  EXPECT_GT(self({"pid"}).toIValue().toInt(), 0);
  EXPECT_EQ(callee({1, 2}).toIValue().toInt(), 3);
  InterpreterSession later = sharedManager().acquireOne();
  EXPECT_FALSE(later.isOwner(self));
}

TEST(Lifetime, LoadPickleFromManyThreadsMakesObjectsOfTheirOwn) {
  Package package = sharedManager().loadPackage(packagePath());
  std::vector<ReplicatedObj> objects(32);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < 4; ++i) {
        objects[thread * 4 + i] = package.loadPickle("model", "model.pkl");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Interpreter& worker : sharedManager().allInstances()) {
    InterpreterSession session = worker.acquireSession();
    const Obj identity = session.global("builtins", "id");
    std::set<int64_t> identities;
    for (size_t i = 0; i < objects.size(); ++i) {
      const Obj object = objects[i].toObj(&session);
      object({"set_mark", static_cast<int64_t>(i)});
      identities.insert(identity({object}).toIValue().toInt());
    }
    EXPECT_EQ(identities.size(), objects.size());
    for (size_t i = 0; i < objects.size(); ++i) {
      EXPECT_EQ(objects[i].toObj(&session)({"get_mark"}).toIValue().toInt(),
                static_cast<int64_t>(i));
    }
  }
}

TEST(Lifetime, ANewSessionNeverGetsADeadWorker) {
  sharedManager();
  InterpreterManager manager(2);
  const Subject subject(manager);
  for (int round = 0; round < 10; ++round) {
    const Interpreter& worker = manager.allInstances()[static_cast<size_t>(round % 2)];
    const pid_t victim = worker.processId().value_or(-1);
    if (victim < 0) continue;
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    ASSERT_TRUE(waitUntilDead(victim, kPatience));
    InterpreterSession session =
        round % 3 == 0 ? worker.acquireSession() : subject.object().acquireSession(&worker);
    EXPECT_NE(session.global("os", "getpid")(NoArguments()).toIValue().toInt(), victim);
  }
}

TEST(Lifetime, ThreadsWithPinnedSessionsSurviveTheKillsOfTheirWorkers) {
  sharedManager();
  InterpreterManager manager(4);
  const Subject subject(manager);
  std::atomic<bool> stop{false};
  std::atomic<int> steps{0};
  std::atomic<int> losses{0};
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      const Interpreter* mine = &manager.allInstances().at(thread % 4);
      const at::Tensor x = at::full({1000}, static_cast<double>(thread));
      while (!stop) {
        try {
          InterpreterSession session = subject.object().acquireSession(mine);
          while (!stop) {
            const at::Tensor y =
                session.self.attr("__call__")({"add_one", x}).toIValue().toTensor();
            EXPECT_TRUE(y.equal(x + 1));
            session.global("gc", "collect")(NoArguments());
            ++steps;
          }
        } catch (const WorkerLost& lost) {
          EXPECT_EQ(lost.signal(), SIGKILL);
          ++losses;
        }
      }
    });
  }
  for (size_t kill = 0; kill < 12; ++kill) {
    const int before = steps;
    EXPECT_TRUE(waitUntil([&] { return steps > before + 20; }));
    const Interpreter& worker = manager.allInstances()[kill % 4];
    const pid_t victim = worker.processId().value_or(-1);
    if (victim > 0) ::kill(victim, SIGKILL);
    EXPECT_TRUE(waitUntil([&] { return worker.processId() != victim; }));
  }
  const int before = steps;
  EXPECT_TRUE(waitUntil([&] { return steps > before + 20; }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(losses, 12);
}

}  // namespace
}  // namespace isopool::tests
