// SPDX-License-Identifier: BSD-3-Clause
// Only this include: programs use what it includes.
#include <multipy/runtime/deploy.h>
//
#include <gtest/gtest.h>

namespace {

TEST(DeployHeader, BringsWhatProgramsUseWithoutIncludingIt) {
  char folder[4096];
  ASSERT_NE(getcwd(folder, sizeof folder), nullptr);
  std::ifstream file("/proc/self/comm");
  std::string name;
  file >> name;
  assert(!name.empty());
  std::vector<int> counts(2);
  std::function<void(size_t)> count = [&](size_t i) { ++counts[i]; };
  std::vector<std::thread> threads;
  for (const auto i : c10::irange(counts.size())) threads.emplace_back(count, i);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counts, std::vector<int>({1, 1}));
  std::shared_ptr<torch::IMethod> method;
  EXPECT_THROW(torch::jit::load("/no/such/file"), c10::Error);
  std::unordered_map<std::string, c10::IValue> kwargs;
  std::cout << kwargs.size() << std::endl;
}

TEST(DeployHeader, GivesEveryNameTwice) {
  static_assert(std::is_same_v<torch::deploy::Environment, multipy::runtime::Environment>);
  static_assert(std::is_same_v<torch::deploy::Interpreter, multipy::runtime::Interpreter>);
  static_assert(
      std::is_same_v<torch::deploy::InterpreterManager, multipy::runtime::InterpreterManager>);
  static_assert(
      std::is_same_v<torch::deploy::InterpreterSession, multipy::runtime::InterpreterSession>);
  static_assert(std::is_same_v<torch::deploy::NoopEnvironment, multipy::runtime::NoopEnvironment>);
  static_assert(std::is_same_v<torch::deploy::Obj, multipy::runtime::Obj>);
  static_assert(std::is_same_v<torch::deploy::Package, multipy::runtime::Package>);
  static_assert(std::is_same_v<torch::deploy::ReplicatedObj, multipy::runtime::ReplicatedObj>);
}

bool checked(int number) {
  MULTIPY_CHECK(number > 0);
  MULTIPY_CHECK(number > 1, "number is " + std::to_string(number));
  MULTIPY_CHECK_NO_MESSAGE(number > 2);
  MULTIPY_CHECK_WITH_MESSAGE(number > 3, "small");
  MULTIPY_INTERNAL_ASSERT(number > 4);
  MULTIPY_INTERNAL_ASSERT(number > 5, "small");
  MULTIPY_INTERNAL_ASSERT_NO_MESSAGE(number > 6);
  MULTIPY_INTERNAL_ASSERT_WITH_MESSAGE(number > 7, "small");
  return true;
}

TEST(DeployHeader, ChecksMayStandInsideOtherMacros) {
  EXPECT_THROW(MULTIPY_CHECK(false, "small"), std::runtime_error);
  EXPECT_THROW(MULTIPY_INTERNAL_ASSERT(false), std::runtime_error);
}

TEST(DeployHeader, ChecksSayConditionPlaceAndMessage) {
  EXPECT_TRUE(checked(8));
  for (const int number : c10::irange(8)) {
    const bool internal = number >= 4;
    const std::string condition = "(number > " + std::to_string(number) + ")";
    try {
      checked(number);
      FAIL() << condition;
    } catch (const std::runtime_error& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find(internal ? "Internal Assertion failed: " : "Check failed: "), 0u) << text;
      EXPECT_NE(text.find(condition + ", function checked, file "), std::string::npos) << text;
      EXPECT_NE(text.find(", line "), std::string::npos) << text;
      EXPECT_EQ(text.find("Please report bug") != std::string::npos, internal) << text;
      const std::string message = number == 1       ? "number is 1\n"
                                  : number % 2 == 1 ? "small\n"
                                                    : ".\n";
      if (!internal || number % 2 == 1) {
        EXPECT_EQ(text.substr(text.size() - message.size()), message) << text;
      }
    }
  }
}

}  // namespace
