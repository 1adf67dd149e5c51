// SPDX-License-Identifier: BSD-3-Clause
#include "batch/command/printable.h"

#include <gtest/gtest.h>

namespace isopool::batch {
namespace {

TEST(Printable, LeavesText) {
  EXPECT_EQ(printable("", 10), "");
  EXPECT_EQ(printable("größer als 日本", 100), "größer als 日本");
}

TEST(Printable, HidesWhatControlsATerminal) {
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m\a", 100), "?[31mred?[0m?");
  EXPECT_EQ(printable("a\nb\rc\td\x7f", 100), "a?b?c?d?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m",
                      100),
            "?31m")
      << "one byte's worth of CSI, as UTF-8";
  EXPECT_EQ(printable(std::string_view("\0x", 2), 100), "?x");
}

TEST(Printable, HidesInvalidBytes) {
  EXPECT_EQ(printable("a\xff\xc3", 100), "a??");
  EXPECT_EQ(printable("\xed\xa0\x80", 100), "???") << "a surrogate";
}

TEST(Printable, CutsLongTextsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("aöö", 2), "aö...") << "a character is not cut in two";
}

}  // namespace
}  // namespace isopool::batch
