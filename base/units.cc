// SPDX-License-Identifier: BSD-3-Clause
#include "base/units.h"

#include <algorithm>
#include <charconv>

namespace isopool::base {

std::optional<uint64_t> parseQuantity(std::string_view text, std::span<const Unit> units,
                                      uint64_t bareFactor) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  uint64_t factor = bareFactor;
  if (!text.empty()) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const auto unit = std::find_if(units.begin(), units.end(),
                                   [&](const Unit& each) { return each.name == text; });
    if (unit == units.end()) return std::nullopt;
    factor = unit->factor;
  }
  return number > UINT64_MAX / factor ? UINT64_MAX : number * factor;
}

std::string spellQuantity(uint64_t value, std::span<const Unit> units, std::string_view gap) {
  const auto unit = std::find_if(units.rbegin(), units.rend(), [&](const Unit& each) {
    return value != 0 && value % each.factor == 0;
  });
  if (unit == units.rend()) return std::to_string(value);
  return std::to_string(value / unit->factor).append(gap).append(unit->name);
}

}  // namespace isopool::base
