// SPDX-License-Identifier: BSD-3-Clause
// multipy's checks, with no header except their own.
#include <multipy/runtime/Exception.h>

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace {

/// The text that a failed check throws.
std::string textOf(const std::function<void()>& check) {
  try {
    check();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  ADD_FAILURE() << "it did not throw a runtime_error";
  return "";
}

/// The first line of the text of a failed check in `function`, up to its line number.
std::string beginning(const std::string& kind, const std::string& condition) {
  return kind + ": (" + condition + "), function operator(), file " __FILE__ ", line ";
}

TEST(Checks, ThatHoldDoNothingAndMakeNoMessage) {
  int made = 0;
  const auto message = [&] {
    ++made;
    return std::string("made");
  };
  MULTIPY_CHECK(1 < 2);
  MULTIPY_CHECK(1 < 2, message());
  MULTIPY_CHECK_NO_MESSAGE(true);
  MULTIPY_CHECK_WITH_MESSAGE(true, message());
  MULTIPY_INTERNAL_ASSERT(true);
  MULTIPY_INTERNAL_ASSERT(true, message());
  MULTIPY_INTERNAL_ASSERT_NO_MESSAGE(true);
  MULTIPY_INTERNAL_ASSERT_WITH_MESSAGE(true, message());
  EXPECT_EQ(made, 0);
}

TEST(Checks, SayWhatFailedAndWhere) {
  for (const std::string& text :
       {textOf([] { MULTIPY_CHECK(1 > 2); }), textOf([] { MULTIPY_CHECK_NO_MESSAGE(1 > 2); })}) {
    EXPECT_EQ(text.find(beginning("Check failed", "1 > 2")), 0u) << text;
    EXPECT_EQ(text.substr(text.size() - 2), ".\n") << text;
  }
}

TEST(Checks, SayTheMessageOnALineOfItsOwn) {
  const std::string what = "numbers changed: " + std::to_string(3);
  for (const std::string& text : {textOf([&] { MULTIPY_CHECK(1 > 2, what); }),
                                  textOf([&] { MULTIPY_CHECK_WITH_MESSAGE(1 > 2, what); })}) {
    EXPECT_EQ(text.find(beginning("Check failed", "1 > 2")), 0u) << text;
    EXPECT_NE(text.find(".\nnumbers changed: 3\n"), std::string::npos) << text;
  }
}

TEST(Checks, OfInternalsAskForAReport) {
  for (const std::string& text : {textOf([] { MULTIPY_INTERNAL_ASSERT(1 > 2); }),
                                  textOf([] { MULTIPY_INTERNAL_ASSERT_NO_MESSAGE(1 > 2); }),
                                  textOf([] { MULTIPY_INTERNAL_ASSERT(1 > 2, "odd"); }), textOf([] {
                                    MULTIPY_INTERNAL_ASSERT_WITH_MESSAGE(1 > 2, "odd");
                                  })}) {
    EXPECT_EQ(text.find(beginning("Internal Assertion failed", "1 > 2")), 0u) << text;
    EXPECT_NE(text.find("Please report bug to"), std::string::npos) << text;
  }
  EXPECT_NE(textOf([] { MULTIPY_INTERNAL_ASSERT(1 > 2, "odd"); }).find("\nodd\n"),
            std::string::npos);
}

TEST(Checks, AreSingleStatements) {
  const auto pick = [](bool first) {
    if (first)
      MULTIPY_CHECK(true);
    else
      MULTIPY_CHECK(false, "the other branch");
  };
  pick(true);
  EXPECT_NE(textOf([&] { pick(false); }).find("the other branch"), std::string::npos);
}

}  // namespace
