// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "testing/sanitizers.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// Counts what was copied since the object was made.
class Copied {
 public:
  CopyCounters since() const { return copyCounters() - before_; }
  uint64_t total() const { return since().total(); }

 private:
  const CopyCounters before_ = copyCounters();
};

bool isAll(const at::Tensor& x, double value) { return x.eq(value).all().item<bool>(); }

/// Makes sure that the following calls find free blocks: if memory is short, more is requested in
/// the background, and results are copied until it arrives.
void warmUp(const Subject& subject, int64_t elements) {
  const at::Tensor x = empty({elements});
  const auto quiet = [&] {
    const Copied copied;
    subject.tensor("add_one", {x});
    return copied.total() == 0;
  };
  EXPECT_TRUE(waitUntil(quiet));
}

// ---- towards the worker and back -------------------------------------------------------------

// If a worker does not start a call within milliseconds, the call moves to another worker and its
// input is copied once more.
bool isOneCopyForEachWorker(uint64_t counted, uint64_t bytes) {
  return counted == bytes || counted == 2 * bytes;
}

TEST(Copies, NoneForASharedTensorThatComesBack) {
  const at::Tensor x = empty({100'000}).fill_(3);
  const Copied copied;
  const at::Tensor y = sharedSubject().tensor("identity", {x});
  EXPECT_EQ(copied.total(), 0u);
  EXPECT_EQ(y.data_ptr(), x.data_ptr());
  EXPECT_EQ(y.storage().unsafeGetStorageImpl(), x.storage().unsafeGetStorageImpl());
}

TEST(Copies, NoneForAResultThatTheCallMakes) {
  warmUp(sharedSubject(), 100'000);
  const at::Tensor x = empty({100'000}).fill_(3);
  const Copied copied;
  const at::Tensor y = sharedSubject().tensor("add_one", {x});
  EXPECT_EQ(copied.total(), 0u);
  EXPECT_TRUE(isAll(y, 4));
  EXPECT_TRUE(isShared(y));
  EXPECT_NE(y.data_ptr(), x.data_ptr());
}

TEST(Copies, NoneForAResultThatGoesBackToItsWorker) {
  warmUp(sharedSubject(), 100'000);
  at::Tensor x = empty({100'000}).fill_(0);
  const Copied copied;
  for (int i = 0; i < 20; ++i) x = sharedSubject().tensor("add_one", {x});
  EXPECT_EQ(copied.total(), 0u);
  EXPECT_TRUE(isAll(x, 20));
}

TEST(Copies, OneOfAnOrdinaryInputCountedToTheByte) {
  const at::Tensor x = at::full({100'000}, 3.0f);
  ASSERT_FALSE(isShared(x));
  warmUp(sharedSubject(), 100'000);
  const Copied copied;
  const at::Tensor y = sharedSubject().tensor("add_one", {x});
  EXPECT_PRED2(isOneCopyForEachWorker, copied.since().inputOutsideSharedMemory, 400'000u);
  EXPECT_EQ(copied.total(), 400'000u);
  EXPECT_TRUE(isAll(y, 4));
}

TEST(Copies, OnlyThePartOfAnOrdinaryInputThatIsPassed) {
  const at::Tensor x = at::full({10'000'000}, 3.0f);
  const Copied copied;
  const at::Tensor y = sharedSubject().tensor("add_one", {x.slice(0, 5'000'000, 5'001'600)});
  EXPECT_TRUE(isAll(y, 4));
  EXPECT_PRED2(isOneCopyForEachWorker, copied.since().inputOutsideSharedMemory, 6400u);
}

TEST(Copies, OneOfAResultFromElsewhereCountedToTheByte) {
  warmUp(sharedSubject(), 100'000);
  const Copied copied;
  const at::Tensor y = sharedSubject().tensor("from_bytes", {100'000});
  EXPECT_EQ(copied.since().resultOutsideSharedMemory, 400'000u);
  EXPECT_EQ(copied.total(), 400'000u);
  EXPECT_EQ(y[99'999].item<float>(), 99'999);
}

TEST(Copies, NoneOfAnArrayThatNumpyAllocates) {
  warmUp(sharedSubject(), 100'000);
  const Copied copied;
  const at::Tensor y = sharedSubject().tensor("from_numpy", {100'000});
  EXPECT_EQ(copied.total(), 0u);
  EXPECT_EQ(y[99'999].item<float>(), 99'999);
}

TEST(Copies, SmallOrdinaryTensorsTravelInline) {
  const at::Tensor x = at::ones({100});
  const Copied copied;
  EXPECT_EQ(sharedSubject().ask("sums", {x}).toDouble(), 100);
  EXPECT_EQ(copied.since().inputInline, 400u);
  EXPECT_EQ(copied.total(), 400u);
}

TEST(Copies, NoneForASmallTensorOfEmpty) {
  const at::Tensor x = empty({3}).fill_(1);
  EXPECT_TRUE(isShared(x));
  const Copied copied;
  EXPECT_EQ(sharedSubject().tensor("identity", {x}).data_ptr(), x.data_ptr());
  EXPECT_EQ(copied.total(), 0u);
}

/// A tensor whose own storage covers `elements` of a tensor in shared memory, from
/// byte `offset` on.
at::Tensor viewAt(const at::Tensor& shared, int64_t offset, int64_t elements) {
  return at::from_blob(
      static_cast<std::byte*>(shared.data_ptr()) + offset, {elements}, [shared](void*) {},
      at::kFloat);
}

TEST(Copies, NoneForAViewThatBeginsInsideASharedBuffer) {
  const at::Tensor shared = empty({100'000}).fill_(3);
  for (const int64_t offset : {16, 64, 4096, 4096 + 48}) {
    const at::Tensor view = viewAt(shared, offset, 2000);
    const Copied copied;
    EXPECT_EQ(sharedSubject().ask("sums", {view}).toDouble(), 6000);
    sharedSubject().ask("fill", {view, 4});
    EXPECT_EQ(sharedSubject().tensor("identity", {view}).data_ptr(), view.data_ptr());
    EXPECT_EQ(copied.total(), 0u) << offset;
    EXPECT_TRUE(isAll(view, 4));
    EXPECT_EQ(shared.sum().item<double>(), 3 * 100'000 + 2000);
    view.fill_(3);
  }
}

TEST(Copies, OneOfAViewAtAnOddOffsetOfASharedBuffer) {
  const at::Tensor shared = empty({100'000}).fill_(3);
  for (const int64_t offset : {4, 4096 + 8}) {
    const at::Tensor view = viewAt(shared, offset, 2000);
    const Copied copied;
    EXPECT_EQ(sharedSubject().ask("sums", {view}).toDouble(), 6000);
    EXPECT_PRED2(isOneCopyForEachWorker, copied.since().inputOutsideSharedMemory, 8000u);
    EXPECT_EQ(copied.total(), 8000u);
  }
}

TEST(Copies, OneOfAViewThatReachesBeyondItsBlock) {
  // The next page of the segment belongs to `neighbour`.
  const at::Tensor shared = empty({2048}).fill_(3);
  const at::Tensor neighbour = empty({2048}).fill_(3);
  const at::Tensor view = viewAt(shared, 64, 2048);
  const Copied copied;
  static_cast<void>(sharedSubject().ask("sums", {view}));
  EXPECT_PRED2(isOneCopyForEachWorker, copied.since().inputOutsideSharedMemory, 8192u);
}

TEST(Copies, OneOfAViewInsideASharedBufferThatTheModelKeeps) {
  OwnPool pool(1);
  const at::Tensor shared = empty({100'000}).fill_(3);
  const at::Tensor view = viewAt(shared, 4096 + 48, 2000);
  pool.subject().ask("keep", {view});
  shared.fill_(5);
  EXPECT_EQ(pool.subject().ask("kept_sum").toDoubleVector().at(0), 6000)
      << "what the model keeps is its own";
  // The same pages are passed again, whole and in part, while the model has private ones.
  EXPECT_EQ(pool.subject().ask("sums", {shared}).toDouble(), 500'000);
  EXPECT_EQ(pool.subject().ask("sums", {view}).toDouble(), 10'000);
  EXPECT_EQ(pool.subject().ask("kept_sum").toDoubleVector().at(0), 6000);
}

/// A tensor that the model of a pool of one worker keeps and the caller's tensor are independent.
class KeptOfOneWorker : public ::testing::Test {
 protected:
  void expectKept(std::vector<double> sums) {
    EXPECT_EQ(pool_.subject().ask("kept_sum").toDoubleVector(), sums);
  }

  OwnPool pool_{1};
  const Subject& subject_ = pool_.subject();
};

TEST_F(KeptOfOneWorker, ViewsThatShareAPageAreTheModelsAlone) {
  const at::Tensor shared = empty({100'000}).fill_(3);
  const at::Tensor one = viewAt(shared, 64, 4096);
  const at::Tensor two = viewAt(shared, 16448, 4096);
  const Copied copied;
  subject_.ask("keep_both", {one, two});
  EXPECT_EQ(copied.since().keptByModel, 2 * 16384u);
  EXPECT_EQ(copied.total(), 2 * 16384u);
  shared.fill_(5);
  expectKept({3 * 4096, 3 * 4096});
  subject_.ask("write_kept", {4});
  EXPECT_TRUE(isAll(shared, 5));
  // The same pages are passed and kept again while the model still has those of the first call.
  subject_.ask("keep_both", {two, one});
  shared.fill_(6);
  expectKept({4 * 4096, 4 * 4096, 5 * 4096, 5 * 4096});
  // When the model has dropped the tensors, the pages are shared again.
  subject_.ask("forget");
  subject_.ask("fill", {one, 7});
  EXPECT_EQ(subject_.ask("sums", {shared}).toDouble(), 6 * 100'000 + 4096);
  EXPECT_EQ(shared.sum().item<double>(), 6 * 100'000 + 4096);
}

TEST_F(KeptOfOneWorker, ViewsThatOverlapAreTheModelsAlone) {
  const at::Tensor shared = empty({100'000}).fill_(3);
  subject_.ask("keep_both", {viewAt(shared, 64, 4096), viewAt(shared, 8192, 4096)});
  shared.fill_(5);
  expectKept({3 * 4096, 3 * 4096});
}

TEST_F(KeptOfOneWorker, AViewBesideAnObjsIsTheModelsAlone) {
  const at::Tensor shared = empty({100'000}).fill_(3);
  InterpreterSession session = subject_.object().acquireSession();
  for (const int64_t offset : {int64_t{64}, int64_t{16448}}) {
    const Obj held = session.fromIValue(viewAt(shared, offset, 4096));
    subject_.ask("keep", {viewAt(shared, 16448, 4096)});
    shared.fill_(5);
    expectKept({3 * 4096});
    subject_.ask("write_kept", {4});
    EXPECT_TRUE(isAll(shared, 5));
    // A tensor behind an Obj is the caller's memory while the Obj is held.
    EXPECT_EQ(held.attr("sum")(at::ArrayRef<Obj>()).toIValue().toTensor().item<float>(), 5 * 4096);
    subject_.ask("forget");
    shared.fill_(3);
  }
}

TEST_F(KeptOfOneWorker, AResultThatAnObjHasTooIsTheModelsAlone) {
  warmUp(subject_, 100'000);
  const at::Tensor result = subject_.tensor("add_one", {empty({100'000}).fill_(2)});
  InterpreterSession session = subject_.object().acquireSession();
  const Obj held = session.fromIValue(result);
  subject_.ask("keep", {result});
  result.fill_(5);
  expectKept({300'000});
  EXPECT_EQ(held.attr("sum")(at::ArrayRef<Obj>()).toIValue().toTensor().item<float>(), 500'000);
}

TEST(Copies, OneOfAResultThatGoesToAnotherWorker) {
  const auto workers = sharedManager().allInstances();
  InterpreterSession one = sharedSubject().object().acquireSession(&workers[0]);
  InterpreterSession two = sharedSubject().object().acquireSession(&workers[1]);
  const at::Tensor x = one.self({"matrix", 100}).toIValue().toTensor();
  const Copied copied;
  EXPECT_EQ(two.self({"sums", x}).toIValue().toDouble(), 9999 * 5000.0);
  EXPECT_EQ(copied.since().inputOfOtherWorker, 40'000u);
  EXPECT_EQ(copied.total(), 40'000u);
}

TEST(Copies, TooManyLeasesAreCountedAndTheResultsRight) {
  std::vector<at::Tensor> held;
  const Copied copied;
  for (int i = 0; i < 5000; ++i) held.push_back(sharedSubject().tensor("matrix", {16}));
  EXPECT_GT(copied.since().resultNoLease + copied.since().resultOutsideSharedMemory, 0u);
  const at::Tensor expected = at::arange(256, at::kFloat).view({16, 16});
  for (const at::Tensor& each : held) ASSERT_TRUE(each.equal(expected));
  held.clear();
  warmUp(sharedSubject(), 100'000);
}

TEST(Copies, NoneUnderASharedMemoryGuard) {
  warmUp(sharedSubject(), 100'000);
  at::Tensor x;
  {
    const SharedMemoryGuard guard;
    x = at::ones({50'000}) + 1;
    {
      const SharedMemoryGuard inner;
      EXPECT_TRUE(isShared(at::rand({1000})));
    }
    EXPECT_TRUE(isShared(at::rand({1000})));
    bool elsewhere = true;
    std::thread([&] { elsewhere = isShared(at::rand({1000})); }).join();
    EXPECT_FALSE(elsewhere) << "a guard affects only its thread";
  }
  EXPECT_FALSE(isShared(at::rand({1000})));
  ASSERT_TRUE(isShared(x));
  const Copied copied;
  EXPECT_TRUE(isAll(sharedSubject().tensor("add_one", {x}), 3));
  EXPECT_EQ(copied.total(), 0u);
}

TEST(Copies, IsSharedTellsAboutEveryKindOfTensor) {
  EXPECT_TRUE(isShared(empty({10, 10})));
  EXPECT_TRUE(isShared(empty({10, 10}).slice(0, 3)));
  EXPECT_TRUE(isShared(sharedSubject().tensor("matrix", {100})));
  EXPECT_FALSE(isShared(at::ones({10})));
  EXPECT_FALSE(isShared(at::Tensor()));
  EXPECT_FALSE(isShared(at::eye(3).to_sparse()));
}

TEST(Copies, EmptyMakesWhatItWasAskedFor) {
  const at::Tensor x = empty({2, 3}, at::TensorOptions().dtype(at::kLong).requires_grad(false));
  EXPECT_EQ(x.scalar_type(), at::kLong);
  EXPECT_EQ(x.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_TRUE(empty({4}, at::TensorOptions().requires_grad(true)).requires_grad());
  EXPECT_EQ(empty({0}).numel(), 0);
  EXPECT_EQ(empty({}).dim(), 0);
  EXPECT_ANY_THROW(empty({3}, at::kMeta));
  EXPECT_ANY_THROW(empty({-3}));
}

TEST(Copies, AliasesAmongInputsAndResultsAreKept) {
  for (const bool isInSharedMemory : {true, false}) {
    at::Tensor x = isInSharedMemory ? empty({1000}) : at::empty({1000});
    x.fill_(1);
    const at::IValue answer = sharedSubject().ask("pair", {x, x.slice(0, 500)});
    const at::Tensor one = answer.toTupleRef().elements()[0].toTensor();
    const at::Tensor two = answer.toTupleRef().elements()[1].toTensor();
    EXPECT_TRUE(one.is_alias_of(two));
    one[500].fill_(9);
    EXPECT_EQ(two[0].item<float>(), 9);
    EXPECT_EQ(one.is_alias_of(x), isInSharedMemory);
  }
  const at::IValue made = sharedSubject().ask("twice", {at::ones({1000})});
  const auto& elements = made.toTupleRef().elements();
  EXPECT_TRUE(elements[0].toTensor().is_alias_of(elements[1].toTensor()));
  EXPECT_TRUE(
      elements[0].toTensor().is_alias_of(elements[2].toGenericDict().at("same").toTensor()));
}

// ---- what is kept ----------------------------------------------------------------------------

class Result : public ::testing::Test {
 protected:
  void TearDown() override { session_.self({"forget"}); }

  at::IValue ask(const char* method, std::vector<at::IValue> arguments = {}) {
    arguments.insert(arguments.begin(), method);
    return session_.self(at::ArrayRef<at::IValue>(arguments)).toIValue();
  }
  /// A call of the pool. It runs in the session's worker because this thread's last call ran there.
  at::IValue call(const char* method, std::vector<at::IValue> arguments = {}) {
    EXPECT_EQ(sharedSubject().number("pid"), ask("pid").toInt());
    return sharedSubject().ask(method, std::move(arguments));
  }

  InterpreterSession session_ = sharedSubject().object().acquireSession();
};

TEST_F(Result, ThatTheModelKeepsIsTheCallersAlone) {
  const Copied copied;
  const at::Tensor mine = call("make_kept", {100'000}).toTensor();
  EXPECT_GE(copied.total(), 400'000u);
  call("write_kept", {5});
  EXPECT_TRUE(isAll(mine, 0));
  mine.fill_(7);
  EXPECT_EQ(call("kept_sum").toDoubleVector()[0], 500'000);
}

TEST_F(Result, ThatANumpyArrayRefersToIsTheCallersAlone) {
  const at::Tensor mine = call("make_with_numpy_view", {100'000}).toTensor();
  call("write_array", {5});
  EXPECT_TRUE(isAll(mine, 0));
}

TEST_F(Result, ThatIsAPartOfWhatTheModelKeepsIsTheCallersAlone) {
  call("make_and_hide", {100'000});
  const at::Tensor mine = call("view_of_kept").toTensor();
  EXPECT_TRUE(isAll(mine, 3));
  call("write_kept", {5});
  EXPECT_TRUE(isAll(mine, 3));
}

TEST_F(Result, InputThatTheModelKeepsIsTheModelsAlone) {
  at::Tensor x = empty({100'000}).fill_(2);
  const Copied copied;
  call("keep", {x});
  EXPECT_EQ(copied.since().keptByModel, 400'000u);
  x.fill_(9);
  EXPECT_EQ(call("kept_sum").toDoubleVector()[0], 200'000);
  call("write_kept", {4});
  EXPECT_TRUE(isAll(x, 9));
}

TEST_F(Result, InputThatIsKeptAndReturnedIsStillTheCallersOwn) {
  at::Tensor x = empty({100'000}).fill_(2);
  const at::Tensor y = call("keep_and_return", {x}).toTensor();
  EXPECT_EQ(y.data_ptr(), x.data_ptr());
  call("write_kept", {4});
  EXPECT_TRUE(isAll(y, 2));
}

TEST_F(Result, InputOfACallThatFailsAfterKeepingItIsTheModelsAlone) {
  at::Tensor x = empty({100'000}).fill_(2);
  EXPECT_THROW(call("keep_and_fail", {x}), RemoteError);
  x.fill_(9);
  EXPECT_EQ(call("kept_sum").toDoubleVector()[0], 200'000);
}

TEST_F(Result, MemoryIsUsedAgainWhenItIsLetGo) {
  warmUp(sharedSubject(), 1'000'000);
  const at::Tensor x = empty({1'000'000}).fill_(1);
  const Copied copied;
  for (int i = 0; i < 300; ++i) {  // 1.2 GB in all
    ASSERT_TRUE(isAll(sharedSubject().tensor("add_one", {x}), 2));
  }
  EXPECT_EQ(copied.total(), 0u);
}

TEST_F(Result, IsNotOverwrittenWhileItIsHeld) {
  std::vector<at::Tensor> held;
  for (int i = 0; i < 50; ++i) {
    held.push_back(sharedSubject().tensor("add_one", {at::full({10'000}, i)}));
  }
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(isAll(held[static_cast<size_t>(i)], i + 1));
}

TEST_F(Result, OutlivesSessionManagerAndWorkers) {
  at::Tensor made;
  at::Tensor inlined;
  at::Tensor weight;
  at::Tensor echoed;
  {
    OwnPool pool(1);
    const at::Tensor x = empty({100'000}).fill_(4);
    made = pool.subject().tensor("add_one", {x});
    inlined = pool.subject().tensor("add_one", {at::ones({3})});
    weight = pool.subject().tensor("return_weight");
    echoed = pool.subject().tensor("identity", {x});
    pool.endManager();
  }
  EXPECT_TRUE(isAll(made, 5));
  made.fill_(6);
  EXPECT_TRUE(isAll(made, 6));
  EXPECT_TRUE(isAll(inlined, 2));
  EXPECT_TRUE(weight.equal(at::arange(65536, at::kFloat)));
  EXPECT_TRUE(isAll(echoed, 4));
  // The result is also a valid argument of another pool.
  EXPECT_TRUE(isAll(sharedSubject().tensor("add_one", {made}), 7));
  EXPECT_TRUE(sharedSubject().tensor("clone", {weight}).equal(weight));
}

TEST_F(Result, OutlivesAKilledSupervisor) {
  OwnPool pool(1);
  const at::Tensor made = pool.subject().tensor("add_one", {empty({100'000}).fill_(4)});
  ::kill(pool.tree().supervisor(), SIGKILL);
  EXPECT_TRUE(pool.tree().goneWithin(kPatience));
  EXPECT_TRUE(isAll(made, 5));
  made.fill_(6);
  EXPECT_TRUE(isAll(made, 6));
}

// ---- weights ---------------------------------------------------------------------------------

const at::Tensor& storedWeight() {
  static const at::Tensor weight = at::arange(65536, at::kFloat);
  return weight;
}

TEST(Weight, OfEachAnswerIsItsCallersOwnWithoutACopy) {
  const Copied copied;
  const at::Tensor one = sharedSubject().tensor("return_weight");
  const at::Tensor two = sharedSubject().tensor("return_weight");
  one.fill_(77);
  const at::Tensor three = sharedSubject().tensor("return_weight");
  EXPECT_EQ(copied.total(), 0u);
  EXPECT_TRUE(isAll(one, 77));
  EXPECT_TRUE(two.equal(storedWeight()));
  EXPECT_TRUE(three.equal(storedWeight()));
}

TEST(Weight, IsMappedOnceForAnswersThatFollowEachOther) {
  const auto address = [] { return sharedSubject().tensor("return_weight").data_ptr(); };
  EXPECT_EQ(address(), address());
}

TEST(Weight, ThatItsCallerWroteToAndDroppedIsNotUsedAgain) {
  sharedSubject().tensor("return_weight")[65535] = 77;
  EXPECT_TRUE(sharedSubject().tensor("return_weight").equal(storedWeight()));
}

TEST(Weight, OfTwoTensorsOfAnAnswerIsOneForItsCaller) {
  const at::IValue answer = sharedSubject().ask("weight_and_part");
  const at::Tensor whole = answer.toTupleRef().elements()[0].toTensor();
  const at::Tensor part = answer.toTupleRef().elements()[1].toTensor();
  part.fill_(77);
  EXPECT_TRUE(isAll(whole.slice(0, 16384), 77));
  EXPECT_TRUE(whole.slice(0, 0, 16384).equal(storedWeight().slice(0, 0, 16384)));
  EXPECT_TRUE(sharedSubject().tensor("return_weight").equal(storedWeight()));
}

TEST(Weight, ThatIsShortIsCopiedAndCounted) {
  const Copied copied;
  const at::Tensor small = sharedSubject().tensor("small_weight");
  EXPECT_EQ(copied.since().resultInline, 32u);
  small.fill_(77);
  EXPECT_TRUE(sharedSubject().tensor("small_weight").equal(at::arange(8, at::kFloat)));
}

TEST(Weight, ThatGoesBackToAWorkerIsACopyOfTheCallersTensor) {
  const at::Tensor weight = sharedSubject().tensor("return_weight");
  weight.fill_(77);
  const Copied copied;
  const at::Tensor back = sharedSubject().tensor("clone", {weight});
  EXPECT_PRED2(isOneCopyForEachWorker, copied.since().inputOutsideSharedMemory, 65536u * 4);
  EXPECT_TRUE(isAll(back, 77));
  EXPECT_EQ(sharedSubject().ask("weight_sum").toDouble(), 65536.0 * 65535 / 2);
  sharedSubject().ask("fill", {weight, 78});
  EXPECT_TRUE(isAll(weight, 77)) << "the worker wrote to its copy";
  EXPECT_EQ(sharedSubject().ask("weight_sum").toDouble(), 65536.0 * 65535 / 2);
}

TEST(Weight, WrittenInOneWorkerIsUnchangedInTheOthers) {
  const auto pool = std::make_unique<OwnPool>(2);
  const ReplicatedObj& object = pool->subject().object();
  const auto workers = pool->manager().allInstances();
  InterpreterSession one = object.acquireSession(&workers[0]);
  InterpreterSession two = object.acquireSession(&workers[1]);
  const double sum = two.self({"weight_sum"}).toIValue().toDouble();
  EXPECT_EQ(sum, 65536.0 * 65535 / 2);
  const at::Tensor before = one.self({"return_weight"}).toIValue().toTensor();
  one.self({"write_weight"});
  EXPECT_EQ(one.self({"weight_sum"}).toIValue().toDouble(), 0);
  EXPECT_EQ(two.self({"weight_sum"}).toIValue().toDouble(), sum);
  EXPECT_EQ(before.sum().item<double>(), sum) << "the caller's result does not change";
  const Copied copied;
  const at::Tensor written = one.self({"return_weight"}).toIValue().toTensor();
  EXPECT_TRUE(isAll(written, 0));
  EXPECT_EQ(copied.since().resultWeightWritten, 65536u * 4);
  EXPECT_EQ(two.self({"return_weight"}).toIValue().toTensor().sum().item<double>(), sum);
}

TEST(Weight, WrittenInOneObjectIsUnchangedInOthersOfItsPackage) {
  const auto pool = std::make_unique<OwnPool>(1);
  const double stored = 65536.0 * 65535 / 2;
  const auto sum = [](const Subject& subject) { return subject.ask("weight_sum").toDouble(); };
  const Subject first(pool->manager());
  first.ask("write_weight");
  const Subject second(pool->manager());
  EXPECT_EQ(sum(second), stored);
  second.ask("write_weight");
  ReplicatedObj(second.object()).unload();
  EXPECT_EQ(sum(second), stored);
  EXPECT_EQ(sum(first), 0);
}

TEST(Weight, IsTheStoredOneAgainWhenItsObjectIsLoadedAgain) {
  const auto pool = std::make_unique<OwnPool>(1);
  const Subject& subject = pool->subject();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(subject.ask("weight_sum").toDouble(), 65536.0 * 65535 / 2);
    subject.ask("write_weight");
    EXPECT_EQ(subject.ask("weight_sum").toDouble(), 0);
    ReplicatedObj(subject.object()).unload();
  }
}

TEST(Weight, WrittenByTheCallerIsUnchangedInTheWorkers) {
  // This process has private copies of the package's pages.
  const auto pool = std::make_unique<OwnPool>(1);
  pool->subject().tensor("return_weight").fill_(-1);
  EXPECT_EQ(pool->subject().ask("weight_sum").toDouble(), 65536.0 * 65535 / 2);
}

// ---- a limit ---------------------------------------------------------------------------------

TEST(InputArena, TakesAQuarterOfALimitedAddressSpaceAndLogsIt) {
  Program program({PROGRAM, "limited_address_space", packagePath()});
  EXPECT_EQ(program.readLine(), "shared: 1");
  const auto warning = program.readLine();
  ASSERT_TRUE(warning);
  EXPECT_NE(warning->find("RLIMIT_AS"), std::string::npos) << *warning;
  EXPECT_EQ(program.readLine(), "answer: 2");
  EXPECT_EQ(program.readLine(), "ready");
  program.closeInput();
  EXPECT_EQ(program.waitForEnd(), 0);
}

TEST(InputArena, FallsBackToTheHeapAtItsLimitAndNamesTheSetting) {
  Program program({PROGRAM, "limit", packagePath()}, {"ISOPOOL_INPUT_ARENA_LIMIT=16MiB"});
  EXPECT_EQ(program.readLine(), "some are shared: 1");
  EXPECT_EQ(program.readLine(), "the last one is: 0");
  const auto text = program.readLine();
  ASSERT_TRUE(text);
  EXPECT_EQ(text->find("ArenaFull"), 0u) << *text;
  EXPECT_NE(text->find("ISOPOOL_INPUT_ARENA_LIMIT"), std::string::npos) << *text;
  const auto overdue = program.readLine();
  ASSERT_TRUE(overdue);
  EXPECT_EQ(overdue->find("not started: the deadline passed"), 0u) << *overdue;
  EXPECT_NE(overdue->find("ISOPOOL_INPUT_ARENA_LIMIT"), std::string::npos) << *overdue;
  EXPECT_EQ(program.readLine(), "after letting go: 2");
  EXPECT_EQ(program.readLine(), "ready");
  program.closeInput();
  EXPECT_EQ(program.waitForEnd(), 0);
}

TEST(InputArena, AnInvalidSizeIsRefusedWithTheSettingsName) {
  Program program({PROGRAM, "empty"}, {"ISOPOOL_INPUT_ARENA_LIMIT=a lot"});
  const auto text = program.readLine();
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("ISOPOOL_INPUT_ARENA_LIMIT=a lot"), std::string::npos) << *text;
}

// ---- what workers share ----------------------------------------------------------------------

/// Empty, or the reason why the zygote's memory can't be in huge pages.
std::string whyNoHugePages() {
  if (kUnderAddressSanitizer) return "malloc is the sanitizer's";
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const char* setting : {"[madvise]", "[always]"}) {
    if (text.find(setting) != std::string::npos) return {};
  }
  return "transparent_hugepage is never, or unknown";
}

TEST(HugePages, AreUsedForTheZygotesMemory) {
  if (!whyNoHugePages().empty()) GTEST_SKIP() << whyNoHugePages();
  OwnPool pool(1);
  // The zygote has about 150 MB. The kernel decides how much of it is in huge pages.
  EXPECT_GT(memoryOf(pool.tree().zygote(), "AnonHugePages"), 20u << 20);
}

TEST(HugePages, DoNotChangeTheEnvironmentOfUserCode) {
  EXPECT_EQ(sharedSubject().text("environment", {"GLIBC_TUNABLES"}), "");
  const std::string own = "glibc.malloc.tcache_count=5";
  const OwnPool pool(1, {"GLIBC_TUNABLES=" + own});
  EXPECT_EQ(pool.subject().text("environment", {"GLIBC_TUNABLES"}), own);
}

TEST(HugePages, AreNotRequestedIfTheUserDisablesThem) {
  if (!whyNoHugePages().empty()) GTEST_SKIP() << whyNoHugePages();
  const std::string own = "glibc.malloc.hugetlb=0";
  OwnPool pool(1, {"GLIBC_TUNABLES=" + own});
  EXPECT_EQ(pool.subject().text("environment", {"GLIBC_TUNABLES"}), own);
  OwnPool other(1);
  EXPECT_LT(memoryOf(pool.tree().zygote(), "AnonHugePages"),
            memoryOf(other.tree().zygote(), "AnonHugePages"));
}

}  // namespace
}  // namespace isopool::tests
