// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// Quantities with units, as users write them: "512MiB", "30s". All functions are pure.
namespace isopool::base {

/// A unit and how many of the smallest unit it is.
struct Unit {
  std::string_view name;
  uint64_t factor;
};

/// Units of sizes, in bytes, from the smallest to the largest. If a factor has several names, the
/// last one is used for output.
inline constexpr std::array<Unit, 7> kSizeUnits{{{"B", 1},
                                                 {"K", uint64_t{1} << 10},
                                                 {"KiB", uint64_t{1} << 10},
                                                 {"M", uint64_t{1} << 20},
                                                 {"MiB", uint64_t{1} << 20},
                                                 {"G", uint64_t{1} << 30},
                                                 {"GiB", uint64_t{1} << 30}}};
/// Units of times, in milliseconds, from the smallest to the largest.
inline constexpr std::array<Unit, 4> kTimeUnits{
    {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}}};

/// The value of a text that is a whole number and a unit, with or without spaces between them; a
/// number alone is multiplied by `bareFactor`. UINT64_MAX if the value exceeds 64 bits.
/// std::nullopt for any other text.
std::optional<uint64_t> parseQuantity(std::string_view text, std::span<const Unit> units,
                                      uint64_t bareFactor);

/// The value in the largest unit that divides it, with `gap` between number and unit. Only the
/// number if the value is 0 or no unit divides it.
std::string spellQuantity(uint64_t value, std::span<const Unit> units, std::string_view gap = "");

}  // namespace isopool::base
