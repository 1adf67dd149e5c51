// SPDX-License-Identifier: BSD-3-Clause
// The rarer parts of torch::deploy's interface, as C++17 and without isopool's own names.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <multipy/runtime/deploy.h>
#include <multipy/runtime/path_environment.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

static_assert(std::is_base_of_v<torch::IMethod, torch::deploy::PythonMethodWrapper>);
static_assert(std::is_same_v<torch::deploy::LoadBalancer, multipy::runtime::LoadBalancer>);
static_assert(std::is_constructible_v<torch::deploy::Interpreter,
                                      std::shared_ptr<torch::deploy::Environment>>);
static_assert(
    std::is_constructible_v<torch::deploy::Interpreter, torch::deploy::InterpreterManager*,
                            std::shared_ptr<torch::deploy::Environment>>);
static_assert(!std::is_copy_constructible_v<torch::deploy::Interpreter>);
static_assert(!std::is_move_assignable_v<torch::deploy::Interpreter>);
static_assert(!std::is_convertible_v<std::shared_ptr<torch::deploy::Environment>,
                                     torch::deploy::Interpreter>);

const char* packageFile() { return std::getenv("COMPAT_PACKAGE"); }

TEST(ModuleSources, AreImportedInLaterSessions) {
  torch::deploy::InterpreterManager m(2);
  const size_t before = m.countRegisteredModuleSources();
  m.registerModuleSource("add_one_module", "def add1(a): return a + 1\n");
  EXPECT_EQ(m.countRegisteredModuleSources(), before + 1);
  for (const auto i : c10::irange(m.allInstances().size())) {
    auto I = m.allInstances()[i].acquireSession();
    EXPECT_EQ(I.global("add_one_module", "add1")({1}).toIValue().toInt(), 2);
  }
  auto I = m.acquireOne();
  EXPECT_THROW(I.global("an_unknown_module", "add1"), std::runtime_error);
}

TEST(Methods, AreCalledThroughTorchsInterface) {
  torch::deploy::InterpreterManager m(2);
  torch::deploy::Package package = m.loadPackage(packageFile());
  torch::deploy::ReplicatedObj model = package.loadPickle("model", "model.pkl");
  std::shared_ptr<torch::IMethod> method =
      std::make_shared<torch::deploy::PythonMethodWrapper>(model, "scaled");
  EXPECT_EQ(method->name(), "scaled");
  EXPECT_EQ(method->getArgumentNames(), (std::vector<std::string>{"value", "factor"}));
  const at::Tensor x = at::ones({2});
  std::unordered_map<std::string, c10::IValue> kwargs{{"factor", 3.0}};
  EXPECT_TRUE((*method)({x}, kwargs).toTensor().equal(3 * x));
  EXPECT_TRUE((*method)({x}).toTensor().equal(x));
}

TEST(Balancers, DealOutInterpreters) {
  torch::deploy::LoadBalancer balancer(2);
  const int first = balancer.acquire();
  const int second = balancer.acquire();
  EXPECT_EQ(first + second, 1);
  balancer.free(second);
  EXPECT_EQ(balancer.acquire(), second);
  balancer.setResourceLimit(1);
  EXPECT_EQ(balancer.acquire(), 0);
}

TEST(Interpreters, LiveWithoutAManager) {
  auto environment = std::make_shared<multipy::runtime::PathEnvironment>("/some/folder");
  torch::deploy::Interpreter interpreter(environment);
  torch::deploy::InterpreterSession I = interpreter.acquireSession();
  EXPECT_EQ(I.global("math", "sqrt")({4.0}).toIValue().toDouble(), 2.0);
  EXPECT_TRUE(I.global("sys", "path").attr("__contains__")({"/some/folder"}).toIValue().toBool());
}

/// A session class of a program, which counts its ends.
class CountedSession : public torch::deploy::InterpreterSession {
 public:
  CountedSession(torch::deploy::InterpreterSession&& session, int& ends)
      : torch::deploy::InterpreterSession(std::move(session)) {
    attachDeconstructorCallback([&ends] { ++ends; });
  }
};

TEST(Sessions, SayThatTheyEnd) {
  torch::deploy::InterpreterManager m(1);
  int ends = 0;
  { CountedSession session(m.acquireOne(), ends); }
  EXPECT_EQ(ends, 1);
}

}  // namespace
