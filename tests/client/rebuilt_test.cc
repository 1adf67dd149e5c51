// SPDX-License-Identifier: BSD-3-Clause
// State in replicas, and how a program detects that it is lost.
#include <signal.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using NoArguments = at::ArrayRef<Obj>;

/// With a spare, which has made the object before it replaces a worker. Without one, the
/// replacement unpickles the object itself.
class Rebuilt : public ::testing::TestWithParam<int> {
 protected:
  InterpreterManager& manager() { return pool_.manager(); }
  ReplicatedObj object() const { return pool_.subject().object(); }
  InterpreterSession sessionOn(size_t slot) {
    return object().acquireSession(&manager().allInstances()[slot]);
  }
  int64_t markOn(size_t slot) { return sessionOn(slot).self({"get_mark"}).toIValue().toInt(); }
  void setMark(size_t slot, int64_t mark) { sessionOn(slot).self({"set_mark", mark}); }
  /// Kills the slot's worker and waits for its replacement.
  void replaceWorker(size_t slot) {
    const pid_t victim = pool_.processOf(slot);
    ASSERT_GT(victim, 0);
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    ASSERT_TRUE(waitUntil([&] {
      const pid_t now = pool_.processOf(slot);
      return now != -1 && now != victim;
    }));
  }

  OwnPool pool_{2, {"ISOPOOL_SPARES=" + std::to_string(GetParam())}};
};
INSTANTIATE_TEST_SUITE_P(Spares, Rebuilt, ::testing::Values(0, 1),
                         [](const auto& test) { return std::to_string(test.param); });

TEST_P(Rebuilt, ReplicasAreCountedOncePerLife) {
  object().callOnAll({"set_mark", 5});
  EXPECT_EQ(object().rebuilt(), 0u);
  for (uint64_t round = 1; round <= 3; ++round) {
    replaceWorker(0);
    EXPECT_EQ(markOn(0), 0) << "the state died with its worker";
    EXPECT_EQ(markOn(1), 5);
    EXPECT_EQ(markOn(0), 0);
    EXPECT_EQ(object().rebuilt(), round);
  }
  EXPECT_EQ(ReplicatedObj(object()).rebuilt(), 3u) << "copies are one object";
}

TEST_P(Rebuilt, DoesNotCountFirstLoadsAndUnloadedReplicas) {
  ReplicatedObj second = manager().loadPackage(packagePath()).loadPickle("model", "model.pkl");
  second.acquireSession(&manager().allInstances()[0]);
  second.acquireSession(&manager().allInstances()[1]);
  EXPECT_EQ(second.rebuilt(), 0u);
  second.unload(&manager().allInstances()[0]);
  second.acquireSession(&manager().allInstances()[0]);
  EXPECT_EQ(second.rebuilt(), 0u) << "the worker is the same";
  second.unload();
  replaceWorker(0);
  second.acquireSession(&manager().allInstances()[0]);
  EXPECT_EQ(second.rebuilt(), 0u) << "the worker had no replica";
  replaceWorker(0);
  second.acquireSession(&manager().allInstances()[0]);
  EXPECT_EQ(second.rebuilt(), 1u);
}

TEST_P(Rebuilt, StateIsRestoredByTheProgramBeforeTheNextCall) {
  object().callOnAll({"set_mark", 5});
  for (size_t slot = 0; slot < 2; ++slot) sessionOn(slot).self.attr("double")(NoArguments());
  std::atomic<int> calls{0};
  const std::thread::id here = std::this_thread::get_id();
  object().onRebuilt([&](size_t slot) {
    EXPECT_EQ(std::this_thread::get_id(), here);
    const InterpreterSession session = sessionOn(slot);
    EXPECT_EQ(session.self({"get_mark"}).toIValue().toInt(), 0);
    session.self({"set_mark", 5});
    session.self.attr("double")(NoArguments());
    ++calls;
  });
  for (const size_t slot : {0, 1}) {
    replaceWorker(slot);
    EXPECT_EQ(markOn(slot), 5);
    const at::Tensor weight = sessionOn(slot).self.attr("weight").toIValue().toTensor();
    EXPECT_EQ(weight.scalar_type(), at::kDouble);
  }
  EXPECT_EQ(calls, 2);
  // This also holds for calls of the pool, whichever worker serves them.
  replaceWorker(0);
  replaceWorker(1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pool_.subject().number("get_mark"), 5);
  object().onRebuilt(nullptr);
  replaceWorker(0);
  EXPECT_EQ(markOn(0), 0);
}

TEST_P(Rebuilt, ReplicaIsNeverSeenUnrestoredUnderLoad) {
  object().callOnAll({"set_mark", 5});
  object().onRebuilt([&](size_t slot) { setMark(slot, 5); });
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      while (!stop) {
        try {
          if (i == 0) {
            EXPECT_EQ(markOn(static_cast<size_t>(calls % 2)), 5);
          } else {
            EXPECT_EQ(pool_.subject().number("get_mark"), 5);
          }
        } catch (const WorkerLost& lost) {
          EXPECT_EQ(lost.signal(), SIGKILL);
        }
        ++calls;
      }
    });
  }
  for (size_t kill = 0; kill < 8; ++kill) {
    const int before = calls;
    EXPECT_TRUE(waitUntil([&] { return calls > before + 20; }));
    replaceWorker(kill % 2);
  }
  const int before = calls;
  EXPECT_TRUE(waitUntil([&] { return calls > before + 20; }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(object().rebuilt(), 4u);
}

TEST_P(Rebuilt, CallbackThatThrowsIsCalledAgain) {
  markOn(0);
  int calls = 0;
  object().onRebuilt([&](size_t slot) {
    if (++calls == 1) throw std::runtime_error("not yet");
    setMark(slot, 5);
  });
  replaceWorker(0);
  try {
    markOn(0);
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "not yet");
  }
  EXPECT_EQ(markOn(0), 5);
  EXPECT_EQ(markOn(0), 5);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(object().rebuilt(), 1u);
}

TEST_P(Rebuilt, CallbackMayUseTheWholePool) {
  object().callOnAll({"set_mark", 5});
  object().onRebuilt([&](size_t) {
    pool_.subject().ask("pid");
    object().callOnAll({"set_mark", 5});
  });
  replaceWorker(0);
  replaceWorker(1);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (const size_t slot : {0, 1, 0, 1}) {
    threads.emplace_back([&, slot] { right += markOn(slot) == 5 ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
}

TEST_P(Rebuilt, WorkerThatDiesInTheCallbackIsReplacedUnseen) {
  markOn(0);
  markOn(1);
  std::atomic<int> calls{0};
  object().onRebuilt([&](size_t slot) {
    if (++calls == 1) {
      try {
        sessionOn(slot).self({"die", SIGKILL});
      } catch (const WorkerLost&) {
      }
    }
    setMark(slot, 5);
  });
  replaceWorker(0);
  replaceWorker(1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pool_.subject().number("get_mark"), 5);
  EXPECT_EQ(markOn(0), 5);
  EXPECT_EQ(markOn(1), 5);
  EXPECT_GE(calls, 3);
}

TEST(RebuiltOfNothing, IsRefused) {
  EXPECT_THROW(ReplicatedObj().rebuilt(), Error);
  EXPECT_THROW(ReplicatedObj().onRebuilt([](size_t) {}), Error);
}

}  // namespace
}  // namespace isopool::tests
