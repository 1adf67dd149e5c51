// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

TEST(Call, TakesPositionalAndNamedArguments) {
  const ReplicatedObj& object = sharedSubject().object();
  const at::Tensor x = at::ones({4});
  EXPECT_EQ(object.callKwargs({"sums", x}, {{"scale", 2.0}, {"shift", 0.5}}).toDouble(), 8.5);
  EXPECT_EQ(object.callKwargs({"sums"}, {{"x", x}, {"shift", 1.0}}).toDouble(), 5.0);
  EXPECT_EQ(object.callKwargs({{"name", "sums"}, {"x", x}}).toDouble(), 4.0);
  EXPECT_EQ(object.call({"sums", x}, {{"scale", 3.0}}, {}).toDouble(), 12.0);
  EXPECT_EQ(object({"sums", x}).toDouble(), 4.0);
}

TEST(Call, AMissingArgumentIsAPythonError) {
  try {
    sharedSubject().ask("sums");
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "TypeError");
  }
}

TEST(Call, OfADefaultObjectThrows) {
  const ReplicatedObj object;
  EXPECT_THROW(object({}), Error);
  EXPECT_THROW((void)object.callKwargs({}), Error);
  EXPECT_THROW((void)object.call({}, {}, {}), Error);
  EXPECT_THROW((void)object.hasattr("x"), Error);
  EXPECT_THROW(object.acquireSession(), Error);
}

TEST(Call, HasattrIsFalseForAnyException) {
  const ReplicatedObj& object = sharedSubject().object();
  EXPECT_TRUE(object.hasattr("weight"));
  EXPECT_TRUE(object.hasattr("forward"));
  EXPECT_FALSE(object.hasattr("no_such_thing"));
  EXPECT_FALSE(object.hasattr("sour"));
}

TEST(Call, ResultsAreDetached) {
  at::Tensor x = at::ones({1000}).set_requires_grad(true);
  const at::IValue answer = sharedSubject().ask("requires_grad", {x});
  const auto& elements = answer.toTupleRef().elements();
  EXPECT_TRUE(elements[0].toBool()) << "the model did not see that the input requires a gradient";
  EXPECT_FALSE(elements[1].toTensor().requires_grad());
  EXPECT_TRUE(elements[1].toTensor().is_leaf());
  EXPECT_FALSE(sharedSubject().tensor("return_weight").requires_grad());
}

std::pair<bool, bool> modesInTheWorker() {
  const at::IValue answer = sharedSubject().ask("modes");
  const auto& elements = answer.toTupleRef().elements();
  return {elements[0].toBool(), elements[1].toBool()};
}

TEST(Call, RunsUnderTheCallersGradAndInferenceMode) {
  EXPECT_EQ(modesInTheWorker(), std::pair(true, false));
  {
    const at::NoGradGuard guard;
    EXPECT_EQ(modesInTheWorker(), std::pair(false, false));
    const at::AutoGradMode again(true);
    EXPECT_EQ(modesInTheWorker(), std::pair(true, false));
  }
  {
    const c10::InferenceMode guard;
    EXPECT_EQ(modesInTheWorker(), std::pair(false, true));
  }
  EXPECT_EQ(modesInTheWorker(), std::pair(true, false));
}

TEST(Call, OnAHandleRunsUnderTheCallersModesToo) {
  InterpreterSession session = sharedManager().acquireOne();
  const Obj enabled = session.global("torch", "is_grad_enabled");
  const auto ask = [&] { return enabled(at::ArrayRef<Obj>()).toIValue().toBool(); };
  EXPECT_TRUE(ask());
  const at::NoGradGuard guard;
  EXPECT_FALSE(ask());
}

TEST(Call, UnderInferenceModeGivesAUsableResult) {
  const c10::InferenceMode guard;
  const at::Tensor x = at::ones({1000});
  const at::Tensor y = sharedSubject().tensor("add_one", {x});
  EXPECT_TRUE(y.eq(2).all().item<bool>());
}

TEST(Call, StateStaysInTheWorkerThatItWasSetIn) {
  const ReplicatedObj& object = sharedSubject().object();
  const auto workers = sharedManager().allInstances();
  InterpreterSession first = object.acquireSession(&workers[0]);
  InterpreterSession second = object.acquireSession(&workers[1]);
  first.self.attr("__setattr__")({"marked", 1});
  EXPECT_TRUE(first.self.hasattr("marked"));
  EXPECT_FALSE(second.self.hasattr("marked"));
  // The object of a later session is the same one.
  EXPECT_TRUE(object.acquireSession(&workers[0]).self.hasattr("marked"));
  first.self.attr("__delattr__")({"marked"});
  EXPECT_FALSE(first.self.hasattr("marked"));
}

TEST(Call, AThreadStaysWithItsWorkerWhileThatIsFree) {
  // A worker that does not get a processor for 10 ms loses the call to an idle one.
  const auto patience = std::chrono::milliseconds(10);
  int64_t process = sharedSubject().number("pid");
  for (int i = 0; i < 50; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const int64_t next = sharedSubject().number("pid");
    if (std::chrono::steady_clock::now() - start < patience) EXPECT_EQ(next, process);
    process = next;
  }
}

TEST(Call, TwoAtOnceRunOnTwoWorkers) {
  const Gate gates[2];
  std::vector<std::thread> threads;
  for (const Gate& gate : gates) {
    threads.emplace_back([&gate] { sharedSubject().ask("wait_at", gate.arguments()); });
  }
  EXPECT_NE(gates[0].arrival(), gates[1].arrival());
  for (const Gate& gate : gates) gate.open();
  for (std::thread& thread : threads) thread.join();
}

TEST(Call, WritesOfTheModelIntoASharedInputReachTheCaller) {
  at::Tensor x = empty({1000}).fill_(1);
  sharedSubject().ask("add_in_place", {x});
  EXPECT_TRUE(x.eq(2).all().item<bool>());
  at::Tensor view = x.slice(0, 10, 20);
  sharedSubject().ask("fill", {view, 7});
  EXPECT_EQ(x.eq(7).sum().item<int64_t>(), 10);
}

TEST(Call, WritesOfTheModelIntoAnOrdinaryInputStayThere) {
  at::Tensor x = at::ones({1000});
  sharedSubject().ask("add_in_place", {x});
  EXPECT_TRUE(x.eq(1).all().item<bool>());
}

TEST(Call, LongTextsCrossWhole) {
  const std::string text = std::string(3'000'000, 'q') + "the end";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sharedSubject().text("identity", {text}), text);
  EXPECT_EQ(sharedSubject().text("text", {5'000'000}).size(), 5'000'000u);
}

TEST(Call, ManyTensorsCrossAtOnce) {
  c10::List<at::Tensor> tensors;
  for (int i = 0; i < 2000; ++i) tensors.push_back(at::full({i % 300}, i));
  const auto back = sharedSubject().ask("identity", {tensors}).toTensorVector();
  ASSERT_EQ(back.size(), 2000u);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(back[static_cast<size_t>(i)].numel(), i % 300);
    ASSERT_TRUE(back[static_cast<size_t>(i)].eq(i).all().item<bool>()) << i;
  }
}

TEST(Call, OutlivesItsPackageAndItsOtherCopies) {
  std::optional<ReplicatedObj> copy;
  {
    Package package = sharedManager().loadPackage(packagePath());
    const ReplicatedObj object = package.loadPickle("model", "model.pkl");
    copy = object;
  }
  EXPECT_GT((*copy)({"pid"}).toInt(), 0);
}

}  // namespace
}  // namespace isopool::tests
