// SPDX-License-Identifier: BSD-3-Clause
#include "base/terminal_text.h"

#include <gtest/gtest.h>

#include <clocale>

#include "base/utf8.h"
#include "testing/utf8_locale.h"

namespace isopool::base {
namespace {

using tests::Utf8Locale;

TEST(TerminalText, NoControlCharacterReachesTheTerminal) {
  const Utf8Locale locale;
  EXPECT_EQ(terminalText("\x1b[2Jmodel\x07\r\x7f"), "?[2Jmodel???");
  EXPECT_EQ(terminalText("one\ntwo\tthree"), "one two three");
  EXPECT_EQ(terminalText("\xc2\x9b"
                         "31m"),
            "?31m");  // the one-byte form of ESC [
  EXPECT_EQ(terminalText("a\xe2\x80\xae"
                         "b"),
            "a?b");  // right-to-left override
  EXPECT_EQ(terminalText("\xff\xc3(\xed\xa0\x80"),
            "?"
            "?(???");  // not UTF-8
  EXPECT_EQ(terminalText("\xc3\xa9\xe6\xa8\xa1"), "\xc3\xa9\xe6\xa8\xa1");
}

TEST(TerminalText, OutsideOfUtf8OnlyAsciiIsShown) {
  std::setlocale(LC_CTYPE, "C");
  EXPECT_EQ(terminalText("caf\xc3\xa9"), "caf?");
}

TEST(TerminalText, CutsByColumns) {
  const Utf8Locale locale;
  EXPECT_EQ(terminalText("abcdef", 6), "abcdef");
  EXPECT_EQ(terminalText("abcdefg", 6), "abc...");
  EXPECT_EQ(terminalText("\xe6\xa8\xa1\xe6\xa8\xa1\xe6\xa8\xa1\xe6\xa8\xa1", 6), "\xe6\xa8\xa1...");
  EXPECT_EQ(terminalPath("/models/of/mine/bert.pt", 14), "...ine/bert.pt");
  EXPECT_EQ(terminalPath("bert.pt", 14), "bert.pt");
  EXPECT_EQ(columnsOf("\xe6\xa8\xa1"), 2u);
}

TEST(Utf8, RefusesWhatIsNotTheShortestFormOrNoCharacter) {
  for (const char* wrong : {"\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xed\xbf\xbf",
                            "\xf4\x90\x80\x80", "\xc3", "\x80"}) {
    EXPECT_FALSE(firstCharacter(wrong).valid) << wrong;
  }
  EXPECT_EQ(firstCharacter("\xf4\x8f\xbf\xbf").code, char32_t{0x10FFFF});
}

}  // namespace
}  // namespace isopool::base
