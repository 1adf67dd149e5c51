// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using Args = at::ArrayRef<at::IValue>;

InterpreterSession sessionOn(InterpreterManager& manager, size_t slot) {
  return manager.allInstances()[slot].acquireSession();
}
InterpreterSession sessionOn(size_t slot) { return sessionOn(sharedManager(), slot); }

/// A tensor that the session's worker makes.
Obj madeIn(InterpreterSession& session, int64_t elements) {
  return session.global("torch", "arange")(
      Args{at::IValue(elements), at::IValue(elements + elements), at::IValue(1)});
}

at::Tensor tensorOf(const Obj& object) { return object.toIValue().toTensor(); }

/// An object of a package, and a session in which it was loaded.
struct PackagedModel {
  explicit PackagedModel(InterpreterManager& manager)
      : package(manager.loadPackage(packagePath())),
        session(package.acquireSession()),
        object(session.self.attr("load_pickle")(Args{"model", "model.pkl"})) {}

  Package package;
  InterpreterSession session;
  Obj object;
};

TEST(Movable, ATensorComesBackAsTheSameStorageFromEveryWorker) {
  InterpreterSession first = sessionOn(0);
  InterpreterSession second = sessionOn(1);
  const Obj source = madeIn(first, 1000);
  const ReplicatedObj moved = first.createMovable(source);
  const at::Tensor fromSource = tensorOf(source);
  const at::Tensor here = tensorOf(first.fromMovable(moved));
  const at::Tensor there = tensorOf(second.fromMovable(moved));
  EXPECT_TRUE(there.equal(at::arange(1000, 2000)));
  EXPECT_TRUE(here.storage().is_alias_of(there.storage()));
  EXPECT_TRUE(fromSource.storage().is_alias_of(there.storage()));
  EXPECT_EQ(fromSource.data_ptr(), there.data_ptr());
}

TEST(Movable, WritesToAMovedTensorAreSeenByAllWorkersAndTheCaller) {
  InterpreterSession first = sessionOn(0);
  InterpreterSession second = sessionOn(1);
  const Obj source = madeIn(first, 100);
  const Obj view = source.attr("__getitem__")(Args{0});
  const ReplicatedObj moved = first.createMovable(source);
  const at::Tensor seenBefore = tensorOf(source);
  second.fromMovable(moved).attr("fill_")(Args{7});
  EXPECT_TRUE(seenBefore.eq(7).all().item<bool>());
  EXPECT_EQ(tensorOf(view).item<int64_t>(), 7) << "a view of the source, made before it moved";
  seenBefore.fill_(8);
  EXPECT_EQ(first.fromMovable(moved).attr("sum")(Args{}).toIValue().toTensor().item<int64_t>(),
            800);
}

TEST(Movable, NothingIsCopiedWhenAMovedTensorCrosses) {
  InterpreterSession first = sessionOn(0);
  InterpreterSession second = sessionOn(1);
  const ReplicatedObj moved = first.createMovable(madeIn(first, 100'000));
  const CopyCounters before = copyCounters();
  const at::Tensor here = tensorOf(second.fromMovable(moved));
  const Obj back = first.fromIValue(here);
  EXPECT_EQ(tensorOf(back).data_ptr(), here.data_ptr());
  EXPECT_EQ((copyCounters() - before).total(), 0U);
}

TEST(Movable, AModelOfAPackageRunsOnEveryWorkerWithItsWeightsOnce) {
  PackagedModel model(sharedManager());
  const ReplicatedObj moved = model.session.createMovable(model.object);
  InterpreterSession first = sessionOn(0);
  InterpreterSession second = sessionOn(1);
  const at::Tensor here = tensorOf(moved.toObj(&first).attr("small"));
  const at::Tensor there = tensorOf(moved.toObj(&second).attr("small"));
  EXPECT_TRUE(here.storage().is_alias_of(there.storage()));
  EXPECT_TRUE(here.equal(at::arange(8, at::kFloat)));
  here.fill_(3);
  EXPECT_EQ(tensorOf(moved.toObj(&second).attr("small")).sum().item<float>(), 24);
  // The weight of an object that is loaded from the package is a different tensor.
  const ReplicatedObj fresh = model.package.loadPickle("model", "model.pkl");
  EXPECT_TRUE(tensorOf(fresh.toObj(&first).attr("small")).equal(at::arange(8, at::kFloat)));
}

TEST(Movable, AModelIsMovedFromASessionOfItsOwnAsWellAsFromItsPackages) {
  const ReplicatedObj object =
      sharedManager().loadPackage(packagePath()).loadPickle("model", "model.pkl");
  InterpreterSession session = object.acquireSession(&sharedManager().allInstances()[0]);
  session.self.attr("__setattr__")(Args{"mark", 41});
  const ReplicatedObj moved = sharedManager().createMovable(session.self, &session);
  InterpreterSession other = sessionOn(1);
  EXPECT_EQ(moved.toObj(&other).attr("mark").toIValue().toInt(), 41);
  EXPECT_GT(Subject(moved).number("pid"), 0);
  EXPECT_EQ(moved.name(), object.name());
  EXPECT_EQ(session.createMovable(session.global("builtins", "len")).name(),
            "builtins:builtin_function_or_method");
}

TEST(Movable, ItsPackageMayBeClosedAndItIsStillUnpickledByAReplacement) {
  OwnPool pool(2);
  std::optional<ReplicatedObj> moved;
  {
    PackagedModel model(pool.manager());
    moved = model.package.createMovable(model.object, &model.session);
  }
  for (int round = 0; round < 2; ++round) {
    for (size_t slot = 0; slot < 2; ++slot) {
      const pid_t victim = pool.processOf(slot);
      ASSERT_EQ(::kill(victim, SIGKILL), 0);
      ASSERT_TRUE(
          waitUntil([&] { return pool.processOf(slot) > 0 && pool.processOf(slot) != victim; }));
    }
    InterpreterSession session = sessionOn(pool.manager(), 1);
    EXPECT_EQ(tensorOf(moved->toObj(&session).attr("small")).sum().item<float>(), 28);
  }
}

TEST(Movable, WhatWasWrittenOutlivesTheWorkerThatWroteItAndTheOneThatItWasMovedFrom) {
  OwnPool pool(2);
  std::optional<ReplicatedObj> moved;
  {
    InterpreterSession session = sessionOn(pool.manager(), 0);
    moved = session.createMovable(madeIn(session, 10));
    session.fromMovable(*moved).attr("fill_")(Args{5});
  }
  const pid_t victim = pool.processOf(0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  ASSERT_TRUE(waitUntil([&] { return pool.processOf(0) > 0 && pool.processOf(0) != victim; }));
  for (size_t slot = 0; slot < 2; ++slot) {
    InterpreterSession session = sessionOn(pool.manager(), slot);
    EXPECT_EQ(tensorOf(session.fromMovable(*moved)).sum().item<int64_t>(), 50);
  }
}

TEST(Movable, AStorageThatNumpyPointsToIsCopiedAndStaysUnderItsArray) {
  InterpreterSession session = sessionOn(0);
  const Obj source = madeIn(session, 10);
  const Obj array = source.attr("numpy")(Args{});
  const ReplicatedObj moved = session.createMovable(source);
  InterpreterSession other = sessionOn(1);
  other.fromMovable(moved).attr("fill_")(Args{1});
  EXPECT_TRUE(tensorOf(source).equal(at::arange(10, 20)));
  array.attr("fill")(Args{2});
  EXPECT_TRUE(tensorOf(source).eq(2).all().item<bool>());
  EXPECT_TRUE(tensorOf(session.fromMovable(moved)).eq(1).all().item<bool>());
}

TEST(Movable, AStorageThatDlpackHandedOutIsCopiedAndStaysUnderItsConsumer) {
  InterpreterSession session = sessionOn(0);
  const Obj source = madeIn(session, 10);
  const Obj capsule = session.global("torch", "to_dlpack")({source});
  const ReplicatedObj moved = session.createMovable(source);
  source.attr("fill_")(Args{2});
  const Obj consumer = session.global("torch", "from_dlpack")({capsule});
  EXPECT_TRUE(tensorOf(consumer).eq(2).all().item<bool>());
  EXPECT_TRUE(tensorOf(session.fromMovable(moved)).equal(at::arange(10, 20)));
}

TEST(Movable, TensorsThatSharedAStorageShareItAfterwards) {
  InterpreterSession first = sessionOn(0);
  const Obj tensor = madeIn(first, 12);
  const Obj pair = first.global("builtins", "list")({first.global(
      "builtins", "zip")({first.global("operator", "methodcaller")(Args{"split", 6})({tensor})})});
  const ReplicatedObj moved = first.createMovable(pair);
  InterpreterSession second = sessionOn(1);
  const Obj halves = second.fromMovable(moved);
  const at::Tensor low = tensorOf(halves.attr("__getitem__")(Args{0}).attr("__getitem__")(Args{0}));
  const at::Tensor high =
      tensorOf(halves.attr("__getitem__")(Args{1}).attr("__getitem__")(Args{0}));
  EXPECT_TRUE(low.storage().is_alias_of(high.storage()));
  EXPECT_EQ(high.storage_offset(), 6);
  EXPECT_TRUE(high.equal(at::arange(18, 24)));
}

TEST(Movable, AnObjectThatReceivedAMovedTensorMovesItsStorageOn) {
  InterpreterSession first = sessionOn(0);
  InterpreterSession second = sessionOn(1);
  const ReplicatedObj moved = first.createMovable(madeIn(first, 10));
  const Obj there = second.fromMovable(moved);
  const Obj list = second.global(
      "builtins", "list")({second.global("itertools", "repeat")({there, second.fromIValue(2)})});
  const ReplicatedObj again = second.createMovable(list);
  const at::Tensor one = tensorOf(first.fromMovable(moved));
  const at::Tensor other = tensorOf(first.fromMovable(again).attr("__getitem__")(Args{1}));
  EXPECT_TRUE(one.storage().is_alias_of(other.storage()));
}

TEST(Movable, ItsUnloadDoesNotAffectLivingObjsAndResults) {
  InterpreterSession session = sessionOn(0);
  const Obj source = madeIn(session, 10);
  std::optional<ReplicatedObj> moved = session.createMovable(source);
  const Obj object = session.fromMovable(*moved);
  moved->unload();
  EXPECT_TRUE(tensorOf(object).equal(at::arange(10, 20)));
  EXPECT_TRUE(tensorOf(session.fromMovable(*moved)).equal(at::arange(10, 20)));
  const at::Tensor result = tensorOf(object);
  moved.reset();
  EXPECT_TRUE(result.equal(at::arange(10, 20)));
  EXPECT_TRUE(tensorOf(object).equal(at::arange(10, 20)));
  EXPECT_TRUE(tensorOf(source).equal(at::arange(10, 20)));
}

TEST(Movable, ItsMemoryIsGoneWithItsLastUser) {
  OwnPool pool(1);
  InterpreterSession session = sessionOn(pool.manager(), 0);
  const auto memories = [&] {
    return session.global("builtins", "open")(Args{"/proc/self/maps"})
        .attr("read")(Args{})
        .attr("count")(Args{"isopool:moved"})
        .toIValue()
        .toInt();
  };
  {
    const ReplicatedObj moved = session.createMovable(session.fromIValue(at::ones({1 << 20})));
    EXPECT_EQ(memories(), 1);
  }
  EXPECT_TRUE(waitUntil([&] { return memories() == 0; }));
}

TEST(Movable, ThingsWithoutTensorsMoveToo) {
  InterpreterSession first = sessionOn(0);
  const ReplicatedObj moved = first.createMovable(first.fromIValue("a text"));
  InterpreterSession second = sessionOn(1);
  EXPECT_EQ(moved.toObj(&second).toIValue().toStringRef(), "a text");
  const ReplicatedObj function = first.createMovable(first.global("os", "getpid"));
  EXPECT_EQ(function(Args{}).toInt() > 0, true);
}

TEST(Movable, BoundMethodsMoveAndLambdasAreRefused) {
  PackagedModel model(sharedManager());
  const ReplicatedObj method = model.session.createMovable(model.object.attr("pid"));
  EXPECT_GT(method(Args{}).toInt(), 0);
  const Obj lambda = model.session.global(
      "builtins", "eval")({model.session.fromIValue("lambda: 1"),
                           model.session.global("builtins", "dict")(at::ArrayRef<Obj>())});
  EXPECT_THROW(model.session.createMovable(lambda), RemoteError);
}

TEST(Movable, ForeignAndDefaultObjsAreRefusedWithoutEffect) {
  InterpreterSession first = sessionOn(0);
  InterpreterSession sameWorker = sessionOn(0);
  const Obj text = first.fromIValue("text");
  try {
    sameWorker.createMovable(text);
    ADD_FAILURE();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("Cannot create movable from an object that lives"),
              std::string::npos);
  }
  EXPECT_THROW(first.createMovable(Obj()), Error);
  EXPECT_THROW(sharedManager().createMovable(text, nullptr), Error);
  InterpreterManager stranger(1);
  EXPECT_THROW(stranger.createMovable(text, &first), Error);
  Package package = stranger.loadPackage(packagePath());
  EXPECT_THROW(package.createMovable(text, &first), Error);
}

TEST(Movable, ManyThreadsMoveAtOnceAndEachGetsItsOwn) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        InterpreterSession session = sessionOn(i % 2);
        const int64_t size = 100 * (i + 1) + round;
        const ReplicatedObj moved = session.createMovable(madeIn(session, size));
        InterpreterSession other = sessionOn((i + 1) % 2);
        if (tensorOf(other.fromMovable(moved)).equal(at::arange(size, 2 * size))) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 40);
}

TEST(Movable, AKillWhileItIsPickledIsWorkerLostAndLeavesNothing) {
  OwnPool pool(1);
  InterpreterSession session = pool.subject().object().acquireSession();
  const Gate gate;
  // The object's __reduce__ waits at the gate.
  const Obj waiting = session.self.attr("slow_to_pickle")(gate.arguments());
  std::thread killer([&] {
    ASSERT_TRUE(waitUntil([&] { return gate.arrival() != 0; }));
    ::kill(gate.arrival(), SIGKILL);
  });
  EXPECT_THROW(session.createMovable(waiting), WorkerLost);
  killer.join();
}

TEST(Movable, AMovedTensorStaysValidAfterItsManager) {
  at::Tensor result;
  {
    OwnPool pool(1);
    InterpreterSession session = sessionOn(pool.manager(), 0);
    result = tensorOf(session.fromMovable(session.createMovable(madeIn(session, 10))));
    pool.endManager();
    EXPECT_TRUE(result.equal(at::arange(10, 20)));
  }
  result.fill_(1);
  EXPECT_EQ(result.sum().item<int64_t>(), 10);
}

}  // namespace
}  // namespace isopool::tests
