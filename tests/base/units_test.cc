// SPDX-License-Identifier: BSD-3-Clause
#include "base/units.h"

#include <gtest/gtest.h>

namespace isopool::base {
namespace {

std::optional<uint64_t> sizeIn(std::string_view text) { return parseQuantity(text, kSizeUnits, 1); }
std::optional<uint64_t> timeIn(std::string_view text) {
  return parseQuantity(text, kTimeUnits, 1000);
}

TEST(Units, AreParsedWithAndWithoutASpace) {
  for (const char* text : {"512MiB", "512 MiB", "512M", "536870912", "536870912B"}) {
    EXPECT_EQ(sizeIn(text), uint64_t{512} << 20) << text;
  }
  EXPECT_EQ(timeIn("250ms"), 250u);
  EXPECT_EQ(timeIn("2 h"), 7'200'000u);
}

TEST(Units, ANumberAloneIsInTheUnitThatTheCallerNames) {
  EXPECT_EQ(sizeIn("7"), 7u);
  EXPECT_EQ(timeIn("7"), 7000u);
}

TEST(Units, AreRefusedInOtherSpellings) {
  for (const char* text :
       {"", " 1", "-1", "1.5MiB", "MiB", "1 mib", "1MiB ", "1 KiB KiB", "0x10"}) {
    EXPECT_EQ(sizeIn(text), std::nullopt) << text;
  }
  EXPECT_EQ(sizeIn("99999999999999999999"), std::nullopt) << "the number itself has 65 bits";
}

TEST(Units, AValueOfMoreThan64BitsIsTheLargestOne) {
  EXPECT_EQ(sizeIn("99999999999GiB"), UINT64_MAX);
  EXPECT_EQ(sizeIn("17179869183GiB"), uint64_t{17179869183} << 30) << "the largest that fits";
}

TEST(Units, AreSpelledInTheLargestUnitThatDividesTheValue) {
  EXPECT_EQ(spellQuantity(uint64_t{512} << 20, kSizeUnits), "512MiB");
  EXPECT_EQ(spellQuantity(uint64_t{512} << 20, kSizeUnits, " "), "512 MiB");
  EXPECT_EQ(spellQuantity(1000, kSizeUnits, " "), "1000 B");
  EXPECT_EQ(spellQuantity(0, kSizeUnits), "0");
  EXPECT_EQ(spellQuantity(90'000, kTimeUnits), "90s");
  EXPECT_EQ(spellQuantity(42, {}), "42") << "a count";
}

TEST(Units, WhatIsSpelledIsParsedAsTheSameValue) {
  for (const uint64_t value : {uint64_t{1}, uint64_t{1023}, uint64_t{1} << 44, UINT64_MAX}) {
    EXPECT_EQ(sizeIn(spellQuantity(value, kSizeUnits)), value);
    EXPECT_EQ(sizeIn(spellQuantity(value, kSizeUnits, " ")), value);
    EXPECT_EQ(timeIn(spellQuantity(value, kTimeUnits)), value);
  }
}

}  // namespace
}  // namespace isopool::base
