// SPDX-License-Identifier: BSD-3-Clause
// Which function each way to write a call selects. The worker distinguishes the two kinds of
// arguments.
#include <gtest/gtest.h>
#include <torch/csrc/deploy/deploy.h>
#include <torch/csrc/deploy/path_environment.h>
#include <torch/torch.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using torch::deploy::Obj;
using torch::deploy::ReplicatedObj;

// Exactly these two overloads: no conversion from a value or a pointer to an Obj competes.
static_assert(std::is_invocable_r_v<Obj, Obj&, at::ArrayRef<Obj>>);
static_assert(std::is_invocable_r_v<Obj, Obj&, at::ArrayRef<at::IValue>>);
static_assert(!std::is_invocable_v<Obj&>);
static_assert(!std::is_invocable_v<Obj&, int>);
static_assert(!std::is_convertible_v<std::shared_ptr<isopool::InterpreterObj>, Obj>);
static_assert(std::is_constructible_v<Obj, std::shared_ptr<isopool::InterpreterObj>>);
static_assert(!std::is_convertible_v<at::IValue, Obj>);
static_assert(!std::is_convertible_v<Obj, at::IValue>);
static_assert(std::is_default_constructible_v<Obj> && std::is_copy_assignable_v<Obj>);
static_assert(std::is_same_v<decltype(std::declval<const ReplicatedObj&>()({})), at::IValue>);

class Overload : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    manager = new torch::deploy::InterpreterManager(1);
    model = new ReplicatedObj(
        manager->loadPackage(std::getenv("COMPAT_PACKAGE")).loadPickle("model", "model.pkl"));
  }
  static void TearDownTestSuite() {
    delete model;
    delete manager;
  }

  /// A callable that returns a description of its arguments.
  static Obj reporter(torch::deploy::InterpreterSession& I) {
    const Obj source = I.fromIValue(
        "lambda *args, **kwargs: ' '.join([type(a).__name__ for a in args]"
        " + [k + '=' + type(v).__name__ for k, v in sorted(kwargs.items())])");
    Obj names = I.global("builtins", "dict")(at::ArrayRef<Obj>());
    return I.global("builtins", "eval")({source, names});
  }
  static std::string said(const Obj& answer) { return answer.toIValue().toStringRef(); }

  static torch::deploy::InterpreterManager* manager;
  static ReplicatedObj* model;
};
torch::deploy::InterpreterManager* Overload::manager = nullptr;
ReplicatedObj* Overload::model = nullptr;

TEST_F(Overload, BracesAroundValuesAreValues) {
  auto I = manager->acquireOne();
  Obj report = reporter(I);
  const at::Tensor t = torch::ones({2});
  EXPECT_EQ(said(report({"x"})), "str");
  EXPECT_EQ(said(report({t})), "Tensor");
  EXPECT_EQ(said(report({6, 2, 2, 1})), "int int int int");
  EXPECT_EQ(said(report({1, 2.5, true, "x", t})), "int float bool str Tensor");
  EXPECT_EQ(said(report({at::IValue()})), "NoneType");
  EXPECT_EQ(said(report({std::string("x")})), "str");
  const std::vector<at::IValue> values{1, t};
  EXPECT_EQ(said(report(values)), "int Tensor");
}

TEST_F(Overload, BracesAroundObjectsAreObjects) {
  auto I = model->acquireSession();
  Obj report = reporter(I);
  Obj set = I.global("builtins", "set")(at::ArrayRef<Obj>());
  EXPECT_EQ(said(report({set})), "set");
  EXPECT_EQ(said(report({set, report, set})), "set function set");
  EXPECT_EQ(said(report({model->toObj(&I)})), "Classifier");
  EXPECT_EQ(said(report({I.self})), "Classifier");
  const std::vector<Obj> objects{set, report};
  EXPECT_EQ(said(report(objects)), "set function");
}

TEST_F(Overload, NoArgumentsCanBeWrittenInEachOfTheUsualWays) {
  auto I = manager->acquireOne();
  Obj report = reporter(I);
  EXPECT_EQ(said(report(at::ArrayRef<Obj>())), "");
  EXPECT_EQ(said(report(at::ArrayRef<at::IValue>())), "");
  EXPECT_EQ(said(report(std::vector<Obj>())), "");
  EXPECT_EQ(said(report(std::vector<at::IValue>())), "");
  EXPECT_EQ(said(report.callKwargs({})), "");
  EXPECT_EQ(said(report.callKwargs({}, {})), "");
}

TEST_F(Overload, NamedArgumentsComeAloneOrBehindOthers) {
  auto I = manager->acquireOne();
  Obj report = reporter(I);
  const at::Tensor t = torch::ones({2});
  EXPECT_EQ(said(report.callKwargs({{"a", t}})), "a=Tensor");
  EXPECT_EQ(said(report.callKwargs({{"a", t}, {"b", 2}})), "a=Tensor b=int");
  EXPECT_EQ(said(report.callKwargs({}, {{"b", 2}})), "b=int");
  EXPECT_EQ(said(report.callKwargs({t, 1}, {{"b", 2}})), "Tensor int b=int");
  EXPECT_EQ(said(report.callKwargs({t}, {})), "Tensor");
  const std::unordered_map<std::string, c10::IValue> named{{"c", "x"}};
  EXPECT_EQ(said(report.callKwargs(named)), "c=str");
}

TEST_F(Overload, AModelIsCalledInTheSameWays) {
  const at::Tensor pictures = torch::ones({1, 3, 8, 8});
  const at::Tensor expected = (*model)({pictures}).toTensor();
  EXPECT_TRUE(model->callKwargs({{"pictures", pictures}}).toTensor().equal(expected));
  EXPECT_TRUE(model->callKwargs({}, {{"pictures", pictures}}).toTensor().equal(expected));
  EXPECT_TRUE(model->callKwargs({pictures}, {}).toTensor().equal(expected));
  const std::vector<torch::jit::IValue> inputs{pictures};
  EXPECT_TRUE((*model)(inputs).toTensor().equal(expected));
  EXPECT_THROW((*model)({}), std::runtime_error);
  EXPECT_THROW(static_cast<void>(model->callKwargs({})), std::runtime_error);
  EXPECT_THROW(static_cast<void>(model->callKwargs({}, {})), std::runtime_error);
}

TEST_F(Overload, DefaultObjectsAndModelsThrowHoweverTheyAreUsed) {
  Obj none;
  EXPECT_THROW(none({1}), std::runtime_error);
  EXPECT_THROW(none(at::ArrayRef<Obj>()), std::runtime_error);
  EXPECT_THROW(none.callKwargs({}), std::runtime_error);
  EXPECT_THROW(none.attr("x"), std::runtime_error);
  EXPECT_THROW(none.hasattr("x"), std::runtime_error);
  EXPECT_THROW(none.toIValue(), std::runtime_error);
  auto I = manager->acquireOne();
  EXPECT_THROW(I.global("builtins", "len")({none}), std::runtime_error);
  const ReplicatedObj nothing;
  EXPECT_THROW(nothing({1}), std::runtime_error);
  EXPECT_THROW(static_cast<void>(nothing.hasattr("x")), std::runtime_error);
  EXPECT_THROW(nothing.acquireSession(), std::runtime_error);
}

}  // namespace
