// SPDX-License-Identifier: BSD-3-Clause
#include "client/environment_setting.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "isopool/errors.h"

namespace isopool::client {

namespace {

struct Quantity {
  uint64_t number = 0;
  std::string_view unit;  // what stands behind the number
  bool isNumber = false;
};

Quantity quantityOf(std::string_view text) {
  const char* end = text.data() + text.size();
  Quantity quantity;
  const auto [rest, error] = std::from_chars(text.data(), end, quantity.number);
  quantity.unit = std::string_view(rest, static_cast<size_t>(end - rest));
  quantity.isNumber = error == std::errc();
  return quantity;
}

}  // namespace

uint64_t sizeSetting(const char* variable, uint64_t fallback) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return fallback;
  const auto [number, unit, isNumber] = quantityOf(text);
  int shift = -1;
  if (unit.empty() || unit == "B") shift = 0;
  if (unit == "KiB" || unit == "K") shift = 10;
  if (unit == "MiB" || unit == "M") shift = 20;
  if (unit == "GiB" || unit == "G") shift = 30;
  if (!isNumber || shift < 0 || number > (UINT64_MAX >> shift)) {
    throw Error(std::string(variable) + "=" + text +
                " is no size: give a whole number of bytes, or one with KiB, MiB or GiB behind it");
  }
  return number << shift;
}

std::chrono::milliseconds timeSetting(const char* variable, std::chrono::milliseconds fallback) {
  using std::chrono::milliseconds;
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return fallback;
  const auto [number, unit, isNumber] = quantityOf(text);
  milliseconds one(0);
  if (unit == "ms") one = milliseconds(1);
  if (unit.empty() || unit == "s") one = std::chrono::seconds(1);
  if (unit == "m") one = std::chrono::minutes(1);
  if (unit == "h") one = std::chrono::hours(1);
  constexpr uint64_t kMost = 365 * 24;  // hours, in any unit
  if (!isNumber || one.count() == 0 ||
      number > kMost * 3'600'000 / static_cast<uint64_t>(one.count())) {
    throw Error(std::string(variable) + "=" + text +
                " is no time: give a whole number of seconds, or one with ms, s, m or h behind it");
  }
  return one * static_cast<int64_t>(number);
}

bool switchSetting(const char* variable, bool fallback) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return fallback;
  const std::string_view value(text);
  if (value == "1" || value == "true" || value == "yes" || value == "on") return true;
  if (value == "0" || value == "false" || value == "no" || value == "off") return false;
  throw Error(std::string(variable) + "=" + text + " is no switch: give 1 or 0");
}

}  // namespace isopool::client
