// SPDX-License-Identifier: BSD-3-Clause
// The spellings of multipy's README and of torch::deploy's documents that examples/torch_deploy
// does not use, as C++17 and without isopool's own names.
#include <gtest/gtest.h>
#include <multipy/runtime/deploy.h>
#include <multipy/runtime/environment.h>
#include <multipy/runtime/noop_environment.h>
#include <multipy/runtime/path_environment.h>
#include <torch/deploy.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace {

// torch's headers need C++20 from 2.15 on.
static_assert(__cplusplus < 202002L || TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15,
              "users may have C++17");
static_assert(
    std::is_same_v<torch::deploy::InterpreterManager, multipy::runtime::InterpreterManager>);
static_assert(std::is_same_v<torch::deploy::Obj, multipy::runtime::Obj>);
static_assert(!std::is_copy_constructible_v<torch::deploy::InterpreterManager>);
static_assert(!std::is_move_constructible_v<torch::deploy::InterpreterManager>);
static_assert(std::is_move_constructible_v<torch::deploy::InterpreterSession>);
static_assert(!std::is_base_of_v<std::runtime_error, c10::Error>);

const char* packageFile() { return std::getenv("COMPAT_PACKAGE"); }

/// One pool for all tests that do not depend on the lifetime of a pool.
class Spellings : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    manager = new multipy::runtime::InterpreterManager(4);
    model = new multipy::runtime::ReplicatedObj(
        manager->loadPackage(packageFile()).loadPickle("model", "model.pkl"));
  }
  static void TearDownTestSuite() {
    delete model;
    delete manager;
  }

  static multipy::runtime::InterpreterManager* manager;
  static multipy::runtime::ReplicatedObj* model;
};
multipy::runtime::InterpreterManager* Spellings::manager = nullptr;
multipy::runtime::ReplicatedObj* Spellings::model = nullptr;

TEST(Readme, TheProgramOfMultipysFrontPageWorks) {
  std::shared_ptr<multipy::runtime::Environment> env =
      std::make_shared<multipy::runtime::PathEnvironment>(
          std::getenv("PATH_TO_EXTERN_PYTHON_PACKAGES"));
  multipy::runtime::InterpreterManager manager(4, env);
  try {
    multipy::runtime::Package package = manager.loadPackage(packageFile());
    multipy::runtime::ReplicatedObj model = package.loadPickle("model", "model.pkl");
    std::vector<torch::jit::IValue> inputs;
    inputs.push_back(torch::ones({1, 3, 224, 224}));
    at::Tensor output = model(inputs).toTensor();
    EXPECT_EQ(output.sizes(), (std::vector<int64_t>{1, 10}));
  } catch (const c10::Error& e) {
    FAIL() << e.msg();
  }
}

TEST(Quickstart, HelloWorldIsPrintedByPython) {
  torch::deploy::InterpreterManager m(1);
  auto I = m.acquireOne();
  I.global("builtins", "print")({"Hello world!"});
}

TEST(Quickstart, ADefaultManagerHasTwoInterpreters) {
  torch::deploy::InterpreterManager manager;
  EXPECT_EQ(manager.allInstances().size(), 2u);
}

TEST_F(Spellings, AGlobalIsCalledWithValues) {
  auto I = manager->acquireOne();
  EXPECT_EQ(I.global("math", "sqrt")({9.0}).toIValue().toDouble(), 3.0);
  EXPECT_EQ(I.global("math", "gcd")({12, 18}).toIValue().toInt(), 6);
  EXPECT_EQ(I.global("os.path", "join")({"a", "b"}).toIValue().toStringRef(), "a/b");
  const auto t = torch::ones({2});
  EXPECT_TRUE(I.global("torch", "add")({t, t}).toIValue().toTensor().equal(t + t));
}

TEST_F(Spellings, AGlobalIsCalledWithNothing) {
  auto I = manager->acquireOne();
  auto noArgs = at::ArrayRef<torch::deploy::Obj>();
  EXPECT_GT(I.global("os", "getpid")(noArgs).toIValue().toInt(), 0);
  EXPECT_GT(I.global("os", "getpid")(std::vector<torch::deploy::Obj>()).toIValue().toInt(), 0);
  EXPECT_GE(I.global("gc", "collect")(at::ArrayRef<torch::deploy::Obj>()).toIValue().toInt(), 0);
}

TEST_F(Spellings, ObjectsAreArgumentsOfObjects) {
  auto I = manager->acquireOne();
  torch::deploy::Obj list = I.fromIValue(c10::List<int64_t>({3, 4, 5}));
  EXPECT_EQ(I.global("builtins", "sum")({list}).toIValue().toInt(), 12);
  EXPECT_EQ(list.attr("__getitem__")({0}).toIValue().toInt(), 3);
  std::vector<torch::deploy::Obj> args{list};
  EXPECT_EQ(I.global("builtins", "len")(args).toIValue().toInt(), 3);
}

TEST_F(Spellings, ASessionHoldsTheModelAsSelf) {
  auto I = model->acquireSession();
  EXPECT_TRUE(I.self.hasattr("linear"));
  EXPECT_FALSE(I.self.hasattr("no_such_attribute"));
  EXPECT_EQ(I.self.attr("linear").attr("out_features").toIValue().toInt(), 10);
  const auto x = torch::ones({2});
  EXPECT_TRUE(I.self.attr("scaled")({x, 3.0}).toIValue().toTensor().equal(3 * x));
  EXPECT_EQ(I.self.attr("__call__")({torch::zeros({2, 3, 4, 4})}).toIValue().toTensor().size(0), 2);
  EXPECT_THROW(I.self.attr("no_such_attribute"), std::runtime_error);
}

TEST_F(Spellings, KeywordArgumentsComeAsAMap) {
  const auto pictures = torch::ones({1, 3, 8, 8});
  const auto expected = (*model)({pictures}).toTensor();
  std::unordered_map<std::string, c10::IValue> kwargs{{"pictures", pictures}};
  EXPECT_TRUE(model->callKwargs(kwargs).toTensor().equal(expected));
  EXPECT_TRUE(model->callKwargs({}, kwargs).toTensor().equal(expected));
  EXPECT_TRUE(model->hasattr("forward"));
  auto I = model->acquireSession();
  const auto x = torch::ones({2});
  EXPECT_TRUE(
      I.self.attr("scaled").callKwargs({x}, {{"factor", 4.0}}).toIValue().toTensor().equal(4 * x));
}

TEST_F(Spellings, EveryInterpreterKnowsItsNumber) {
  const auto& instances = manager->allInstances();
  for (const auto i : c10::irange(instances.size())) {
    auto I = instances[i].acquireSession();
    EXPECT_EQ(I.global("torch", "version").attr("interp").toIValue().toInt(),
              static_cast<int64_t>(i));
  }
  int64_t next = 0;
  for (auto& interp : manager->allInstances()) {
    auto I = interp.acquireSession();
    EXPECT_EQ(I.global("torch.version", "interp").toIValue().toInt(), next++);
  }
}

TEST_F(Spellings, AModelsSessionMayBePinnedToAnInterpreter) {
  auto first = manager->allInstances().at(0).acquireSession();
  auto I = model->acquireSession(&manager->allInstances().at(0));
  EXPECT_EQ(I.global("os", "getpid")(at::ArrayRef<torch::deploy::Obj>()).toIValue().toInt(),
            first.global("os", "getpid")(at::ArrayRef<torch::deploy::Obj>()).toIValue().toInt());
}

TEST_F(Spellings, APackagesSessionHoldsItsImporterAsSelf) {
  torch::deploy::Package package = manager->loadPackage(packageFile());
  auto I = package.acquireSession();
  auto object = I.self.attr("load_pickle")({"model", "model.pkl"});
  EXPECT_TRUE(object.hasattr("linear"));
}

TEST_F(Spellings, TwoSessionsMayBeHeldByOneThread) {
  torch::deploy::InterpreterManager one(1);
  auto first = one.acquireOne();
  auto second = one.acquireOne();
  EXPECT_EQ(first.global("math", "sqrt")({4.0}).toIValue().toDouble(), 2.0);
  EXPECT_EQ(second.global("math", "sqrt")({9.0}).toIValue().toDouble(), 3.0);
}

TEST_F(Spellings, APythonErrorIsARuntimeErrorWithPythonsText) {
  auto I = model->acquireSession();
  try {
    I.self.attr("fail")({"far too hot"});
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("Exception Caught inside torch::deploy embedded library"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("ValueError: far too hot"), std::string::npos) << text;
  }
}

TEST_F(Spellings, AMissingFileIsAC10ErrorWithItsMessage) {
  try {
    manager->loadPackage("/no/such/package.pt");
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("/no/such/package.pt"), std::string::npos) << error.msg();
  }
  EXPECT_THROW(manager->loadPackage(packageFile()).loadPickle("model", "none.pkl"),
               std::runtime_error);
}

TEST_F(Spellings, ThreadsShareAModelUnderTheCallersGradMode) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  const auto pictures = torch::ones({1, 3, 8, 8});
  const auto expected = (*model)({pictures}).toTensor();
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      torch::NoGradGuard guard;
      for (int turn = 0; turn < 20; ++turn) {
        right += (*model)({pictures}).toTensor().equal(expected) ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

/// Sets a variable in every interpreter, like an environment of a user.
class MarkedEnvironment : public torch::deploy::Environment {
 public:
  void configureInterpreter(torch::deploy::Interpreter* interp) override {
    auto I = interp->acquireSession();
    I.global("os", "environ").attr("__setitem__")({"COMPAT_MARK", "set"});
    ++configured;
  }
  std::atomic<int> configured{0};
};

TEST(Environments, OfAUsersOwnConfigureEveryInterpreter) {
  auto environment = std::make_shared<MarkedEnvironment>();
  torch::deploy::InterpreterManager manager(2, environment);
  for (auto& interp : manager.allInstances()) {
    auto I = interp.acquireSession();
    EXPECT_EQ(I.global("os", "getenv")({"COMPAT_MARK"}).toIValue().toStringRef(), "set");
  }
  EXPECT_EQ(environment->configured, 2);
}

TEST(Environments, APathIsAppendedToSysPath) {
  multipy::runtime::InterpreterManager manager(
      1, std::make_shared<multipy::runtime::PathEnvironment>("/some/folder/of/packages"));
  auto I = manager.acquireOne();
  EXPECT_TRUE(I.global("sys", "path")
                  .attr("__contains__")({"/some/folder/of/packages"})
                  .toIValue()
                  .toBool());
}

TEST(Environments, TheDefaultMayBeNamed) {
  multipy::runtime::InterpreterManager manager(
      1, std::make_shared<multipy::runtime::NoopEnvironment>());
  auto I = manager.acquireOne();
  EXPECT_EQ(I.global("operator", "add")({1, 2}).toIValue().toInt(), 3);
}

}  // namespace
