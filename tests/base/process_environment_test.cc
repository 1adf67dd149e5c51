// SPDX-License-Identifier: BSD-3-Clause
#include "base/process_environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace isopool::base {
namespace {

/// The variables of a process with these entries; null: after clearenv().
std::vector<std::string> variablesOf(char** entries) {
  char** const before = std::exchange(::environ, entries);
  std::vector<std::string> variables = processEnvironment();
  ::environ = before;
  return variables;
}

TEST(ProcessEnvironment, IsEmptyAfterClearenv) { EXPECT_TRUE(variablesOf(nullptr).empty()); }

TEST(ProcessEnvironment, HasVariablesInTheirOrderAndNoOtherEntries) {
  char first[] = "B=1=2";
  char noVariable[] = "NAME";
  char empty[] = "";
  char unnamed[] = "=x";
  char last[] = "A=";
  char* entries[] = {first, noVariable, empty, unnamed, last, nullptr};
  EXPECT_EQ(variablesOf(entries), (std::vector<std::string>{"B=1=2", "=x", "A="}));
}

}  // namespace
}  // namespace isopool::base
