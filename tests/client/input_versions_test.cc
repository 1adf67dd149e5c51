// SPDX-License-Identifier: BSD-3-Clause
// A worker's write to an input moves the version of the caller's tensor, so that the caller's
// autograd refuses what it has saved, as after a write in its own process.
#include <signal.h>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

constexpr int64_t kSize = 1000;

at::Tensor shared(double value = 2) { return empty({kSize}).fill_(value); }

/// By how much the version of a tensor has moved since this object was made.
class Moves {
 public:
  explicit Moves(at::Tensor tensor) : tensor_(std::move(tensor)), before_(tensor_._version()) {}
  int64_t count() const { return tensor_._version() - before_; }

 private:
  at::Tensor tensor_;
  int64_t before_;
};

/// A product whose factor `x` autograd has saved for the gradient of the other factor.
class SavedProduct {
 public:
  explicit SavedProduct(const at::Tensor& x)
      : weight_(at::ones_like(x).requires_grad_()), sum_((weight_ * x).sum()) {}

  /// The gradient, or autograd's refusal.
  std::string gradient() {
    try {
      sum_.backward();
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      return text.find("modified by an inplace operation") == std::string::npos ? text : "refused";
    }
    return std::to_string(weight_.grad().view(-1)[0].item<int>());
  }

 private:
  at::Tensor weight_;
  at::Tensor sum_;
};

TEST(InputVersion, BackwardRefusesAFactorThatTheModelHasWrittenTo) {
  const at::Tensor x = shared(2);
  SavedProduct product(x);
  sharedSubject().ask("fill", {x, 18});
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, StaysIfTheModelOnlyReads) {
  const at::Tensor x = shared(2);
  const Moves moves(x);
  SavedProduct product(x);
  EXPECT_EQ(sharedSubject().tensor("add_one", {x})[0].item<int>(), 3);
  EXPECT_EQ(moves.count(), 0);
  EXPECT_EQ(product.gradient(), "2");
}

TEST(InputVersion, OfEachInputForItself) {
  const at::Tensor read = shared();
  const at::Tensor written = shared();
  const Moves reads(read);
  const Moves writes(written);
  sharedSubject().ask("add_twice_into", {read, written});
  EXPECT_EQ(reads.count(), 0);
  EXPECT_EQ(writes.count(), 2) << "as often as in one process";
}

TEST(InputVersion, OfAViewIsThatOfItsTensor) {
  const at::Tensor x = shared(2);
  SavedProduct product(x);
  sharedSubject().ask("fill", {x.slice(0, 0, 10), 18});
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, OfAnAliasWithAVersionOfItsOwnStays) {
  const at::Tensor x = shared(2);
  const Moves moves(x);
  const at::Tensor data = x.variable_data();
  const Moves ofData(data);
  sharedSubject().ask("fill", {data, 18});
  EXPECT_EQ(moves.count(), 0) << "as after a write to x.data in one process";
  EXPECT_EQ(ofData.count(), 1);
}

TEST(InputVersion, StaysIfTheWorkerHadACopy) {
  for (const int64_t size : {4, 100'000}) {
    const at::Tensor x = at::full({size}, 2.0f);
    ASSERT_FALSE(isShared(x));
    const Moves moves(x);
    sharedSubject().ask("fill", {x, 18});
    EXPECT_EQ(moves.count(), 0);
    EXPECT_EQ(x[0].item<int>(), 2);
  }
}

TEST(InputVersion, OfAnInferenceTensorDoesNotExist) {
  at::Tensor x;
  {
    const c10::InferenceMode inference;
    x = shared(2);
  }
  sharedSubject().ask("fill", {x, 18});
  EXPECT_EQ(x[0].item<int>(), 18);
  {
    const c10::InferenceMode inference;
    sharedSubject().ask("fill", {x, 19});
  }
  EXPECT_EQ(x[0].item<int>(), 19);
}

TEST(InputVersion, MovesInInferenceModeToo) {
  const at::Tensor x = shared(2);
  SavedProduct product(x);
  {
    const c10::InferenceMode inference;
    sharedSubject().ask("fill", {x, 18});
  }
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, MovesIfTheCallFails) {
  const at::Tensor x = shared(2);
  SavedProduct product(x);
  EXPECT_THROW(sharedSubject().ask("fill_and_raise", {x, 18}), RemoteError);
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, MovesIfTheResultIsRefused) {
  // The report of a few inputs fits into the refusal's slot, that of many does not.
  for (const size_t inputs : {3, 400}) {
    c10::List<at::Tensor> xs;
    std::vector<Moves> moves;
    for (size_t i = 0; i < inputs; ++i) {
      xs.push_back(shared());
      moves.emplace_back(xs.get(i));
    }
    EXPECT_THROW(sharedSubject().ask("fill_all", {xs, "sparse"}), Error);
    for (const Moves& each : moves) EXPECT_EQ(each.count(), 1);
  }
}

TEST(InputVersion, MovesIfTheWorkerDiesInTheCall) {
  OwnPool pool(1);
  const at::Tensor x = shared(2);
  const at::Tensor other = shared(2);
  const at::Tensor copied = at::full({kSize}, 2.0f);
  const Moves ofCopied(copied);
  const Moves ofOther(other);
  SavedProduct product(x);
  EXPECT_THROW(pool.subject().ask("fill_and_die", {x, 18, c10::List<at::Tensor>({other, copied})}),
               WorkerLost);
  EXPECT_EQ(product.gradient(), "refused");
  EXPECT_EQ(ofOther.count(), 1) << "it may have been written to";
  EXPECT_EQ(ofCopied.count(), 0);
}

TEST(InputVersion, StaysIfTheWorkerWasDeadBeforeTheCall) {
  OwnPool pool(1);
  const at::Tensor x = shared(2);
  const Moves moves(x);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(::kill(pool.processOf(0), SIGKILL), 0);
    pool.subject().ask("add_one", {x});
  }
  EXPECT_EQ(moves.count(), 0);
}

TEST(InputVersion, MovesIfTheDeadlinePassesInTheCall) {
  OwnPool pool(1);
  const Gate gate;
  const at::Tensor x = shared(2);
  SavedProduct product(x);
  CallOptions options;
  options.deadline = milliseconds(300);
  std::vector<at::IValue> arguments = {x, 18};
  for (const at::IValue& each : gate.arguments()) arguments.push_back(each);
  try {
    pool.subject().ask("fill_and_wait", arguments, options);
    FAIL() << "it has no end";
  } catch (const DeadlineExceeded& error) {
    EXPECT_TRUE(error.started());
  }
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, MovesWithAnAsynchronousCallAndWithACallOnAllWorkers) {
  const at::Tensor x = shared(2);
  SavedProduct product(x);
  sharedSubject().object().callAsync({"fill", x, 18}, Named{}).get();
  EXPECT_EQ(product.gradient(), "refused");
  SavedProduct again(x);
  sharedSubject().object().callOnAll({"fill", x, 19});
  EXPECT_EQ(again.gradient(), "refused");
}

TEST(InputVersion, MovesForANamedArgument) {
  const at::Tensor x = shared(2);
  SavedProduct product(x);
  EXPECT_TRUE(sharedSubject().object().callKwargs({"fill"}, {{"x", x}, {"value", 18}}).isNone());
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, MovesWithEachStepThatWritesToWhatASessionKeeps) {
  InterpreterSession session = sharedSubject().object().acquireSession();
  const at::Tensor x = shared(2);
  const Moves moves(x);
  {
    const Obj kept = session.fromIValue(x);
    EXPECT_EQ(moves.count(), 0);
    const Obj add = session.global("operator", "iadd");
    const Obj one = session.fromIValue(1);
    for (int i = 1; i <= 3; ++i) {
      SavedProduct product(x);
      add({kept, one});
      EXPECT_EQ(moves.count(), i);
      EXPECT_EQ(product.gradient(), "refused");
    }
    SavedProduct product(x);
    kept.attr("numel")(at::ArrayRef<Obj>());
    EXPECT_EQ(product.gradient(), "5");
  }
  sharedSubject().ask("fill", {x, 18});
  EXPECT_EQ(moves.count(), 4) << "the model writes to it again, and no Obj keeps it any more";
}

TEST(InputVersion, MovesIfTheWorkerOfASessionThatKeepsItDiesInAStep) {
  OwnPool pool(1);
  InterpreterSession session = pool.subject().object().acquireSession();
  const at::Tensor x = shared(2);
  const Obj kept = session.fromIValue(x);
  SavedProduct product(x);
  EXPECT_THROW(session.self({"die", SIGKILL}), WorkerLost);
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, MovesWithEachItemOfAGenerator) {
  const at::Tensor x = shared(2);
  const Moves moves(x);
  ResultStream stream = sharedSubject().object().stream({"filling", x, 3});
  for (int i = 1; i <= 3; ++i) {
    SavedProduct product(x);
    ASSERT_TRUE(stream.next());
    EXPECT_EQ(moves.count(), i);
    EXPECT_EQ(product.gradient(), "refused");
  }
  SavedProduct product(x);
  EXPECT_FALSE(stream.next());
  EXPECT_EQ(product.gradient(), "2");
}

// The model's tensor has become private memory when the call ended.
TEST(InputVersion, StaysWhenTheModelWritesToWhatItKeeps) {
  OwnPool pool(1);
  const at::Tensor x = shared(2);
  const Moves moves(x);
  pool.subject().ask("keep_and_view", {x});
  SavedProduct product(x);
  pool.subject().ask("write_kept_input");
  EXPECT_EQ(x[0].item<int>(), 2);
  EXPECT_EQ(moves.count(), 0);
  EXPECT_EQ(product.gradient(), "2");
}

TEST(InputVersion, OfAResultThatGoesBackToItsWorkerMoves) {
  OwnPool pool(1);
  const at::Tensor y = pool.subject().tensor("add_one", {shared(1)});
  SavedProduct product(y);
  pool.subject().ask("fill", {y, 18});
  EXPECT_EQ(y[0].item<int>(), 18);
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, OfATensorOfAMovedObjectMoves) {
  OwnPool pool(2);
  InterpreterSession session = pool.manager().acquireOne();
  const ReplicatedObj moved = session.createMovable(session.global("torch", "ones")({kSize}));
  const at::Tensor y = moved.acquireSession().self.toIValue().toTensor();
  SavedProduct product(y);
  pool.subject().ask("fill", {y, 18});
  EXPECT_EQ(y[0].item<int>(), 18);
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, OfAResultThatIsAnInputIsThatOfTheInput) {
  const at::Tensor x = shared(2);
  SavedProduct product(x);
  sharedSubject().tensor("first_two", {x}).fill_(18);
  EXPECT_EQ(product.gradient(), "refused");
  const at::Tensor copied = at::full({kSize}, 2.0f);
  const Moves moves(copied);
  sharedSubject().tensor("identity", {copied}).fill_(18);
  EXPECT_EQ(moves.count(), 0) << "the result is a copy";
}

TEST(InputVersion, IsSharedByTheViewsInAResult) {
  const auto both = sharedSubject().ask("with_view", {kSize}).toTupleRef().elements();
  SavedProduct product(both[0].toTensor());
  both[1].toTensor().fill_(18);
  EXPECT_EQ(product.gradient(), "refused");
}

TEST(InputVersion, IsSharedByTheViewsAmongTheArguments) {
  const at::Tensor x = shared(2);
  try {
    sharedSubject().ask("product_after_write", {x, x.view({10, -1})});
    FAIL() << "the model's own autograd has saved what the model writes to";
  } catch (const RemoteError& error) {
    EXPECT_NE(error.message().find("modified by an inplace operation"), std::string::npos)
        << error.message();
  }
  const at::Tensor y = shared(2);
  EXPECT_EQ(sharedSubject().tensor("product_after_write", {y, y.variable_data()})[0].item<int>(), 9)
      << "as in one process, where y.data has a version of its own";
}

}  // namespace
}  // namespace isopool::tests
