// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/settings/environment.h"
#include "base/settings/setting_default.h"

namespace isopool::base {
namespace {

Environment with(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(SettingInEnvironment, IsTheDefaultWhereTheVariableIsNotSetOrEmpty) {
  EXPECT_EQ(settingInEnvironment("ISOPOOL_SANDBOX", with({})).text, "default");
  EXPECT_EQ(settingInEnvironment("ISOPOOL_SANDBOX", with({{"ISOPOOL_SANDBOX", ""}})).text,
            "default");
  EXPECT_EQ(settingInEnvironment("ISOPOOL_INPUT_ARENA_LIMIT", with({})).number,
            defaultOf(settingOfVariable("ISOPOOL_INPUT_ARENA_LIMIT")).number);
  EXPECT_TRUE(settingInEnvironment("ISOPOOL_PRELOAD_MODULES", with({})).items.empty());
}

TEST(SettingInEnvironment, OfASwitchHasOneGrammarWhereverItIsRead) {
  for (const char* variable : {"ISOPOOL_SANDBOX_NETWORK", "ISOPOOL_CORE_DUMPS", "ISOPOOL_NO_KILL",
                               "ISOPOOL_ALLOW_OTHER_PYTHON"}) {
    for (const char* yes : {"1", "true", "yes", "on"}) {
      EXPECT_EQ(settingInEnvironment(variable, with({{variable, yes}})).number, 1u) << yes;
    }
    for (const char* no : {"0", "false", "no", "off"}) {
      EXPECT_EQ(settingInEnvironment(variable, with({{variable, no}})).number, 0u) << no;
    }
  }
}

TEST(SettingInEnvironment, ErrorNamesTheVariableItsTextAndWhatItMayBe) {
  try {
    settingInEnvironment("ISOPOOL_CORE_DUMPS", with({{"ISOPOOL_CORE_DUMPS", "maybe"}}));
    FAIL() << "it was not refused";
  } catch (const SettingError& error) {
    EXPECT_STREQ(error.what(),
                 "ISOPOOL_CORE_DUMPS=maybe: 'maybe' is neither 1 (true, yes, on) "
                 "nor 0 (false, no, off)");
  }
}

TEST(SettingInEnvironment, OfAVariableThatNoSettingHasIsAMistakeOfTheCaller) {
  EXPECT_THROW(settingInEnvironment("ISOPOOL_FROBNICATE", with({})), std::logic_error);
}

}  // namespace
}  // namespace isopool::base
