// SPDX-License-Identifier: BSD-3-Clause
#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace isopool::base {
namespace {

TEST(JsonString, KeepsWhatIsUtf8) {
  EXPECT_EQ(jsonString("Gr\xC3\xBC\xC3\x9F"
                       "e \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "\"Gr\xC3\xBC\xC3\x9F"
            "e \xE2\x82\xAC \xF0\x9F\x98\x80\"");
}

TEST(JsonString, ReplacesWhatIsNot) {
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(jsonString("a\xFFz"), "\"a" + replaced + "z\"");
  EXPECT_EQ(jsonString("\xC3"), "\"" + replaced + "\"") << "ends inside a character";
  EXPECT_EQ(jsonString("\xC0\xAF"), "\"" + replaced + replaced + "\"") << "an overlong form";
  EXPECT_EQ(jsonString("\xED\xA0\x80"), "\"" + replaced + replaced + replaced + "\"")
      << "a surrogate";
  EXPECT_EQ(jsonString("\xF4\x90\x80\x80").size(), 2 + 4 * replaced.size()) << "above U+10FFFF";
}

TEST(JsonString, EscapesControlCharacters) {
  EXPECT_EQ(jsonString(std::string_view("\0\x1F\x7F\b\n\"\\", 7)),
            R"("\u0000\u001f\u007f\b\n\"\\")");
  EXPECT_EQ(jsonString("\xC2\x80 \xC2\x9B \xC2\x9F \xC2\xA0"),
            "\"\\u0080 \\u009b \\u009f \xC2\xA0\"")
      << "and no others";
}

TEST(JsonString, CutsBetweenCharacters) {
  EXPECT_EQ(jsonString("abcdefgh", 10), "\"abcdefgh\"");
  EXPECT_EQ(jsonString("abcdefghi", 10), "\"abcde...\"");
  EXPECT_EQ(jsonString("abcd\xE2\x82\xAC\xE2\x82\xAC", 10), "\"abcd...\"");
  EXPECT_EQ(jsonString("abcd\n\n\n\n", 10), "\"abcd...\"");
}

TEST(JsonText, IsOneLineWithItsFieldsInTheirOrder) {
  Json value{{"z", 1}, {"a", {0.5, true, nullptr}}};
  value["m"] = Json::object();
  value["text"] = "one\ntwo\x7f\xff";
  EXPECT_EQ(jsonText(value),
            "{\"z\":1,\"a\":[0.5,true,null],\"m\":{},\"text\":\"one\\ntwo\\u007f\xEF\xBF\xBD\"}");
}

}  // namespace
}  // namespace isopool::base
