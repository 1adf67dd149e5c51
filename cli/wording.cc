// SPDX-License-Identifier: BSD-3-Clause
#include "cli/wording.h"

#include <pwd.h>

#include <array>
#include <charconv>
#include <map>
#include <vector>

namespace isopool::cli {

namespace {

constexpr uint64_t kSecond = 1000;
constexpr uint64_t kMinute = 60 * kSecond;
constexpr uint64_t kHour = 60 * kMinute;
constexpr uint64_t kDay = 24 * kHour;
constexpr size_t kMostPasswordBytes = 1u << 20;

std::string decimal(double value, int digits) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::fixed, digits);
  return {text.data(), end.ptr};
}

std::string two(uint64_t milliseconds, uint64_t large, const char* largeName, uint64_t small,
                const char* smallName) {
  return std::to_string(milliseconds / large) + " " + largeName + " " +
         std::to_string(milliseconds % large / small) + " " + smallName;
}

}  // namespace

std::string wordsForBytes(uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes == 0) return "0";
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.96 would be printed as 1024.0.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return decimal(value, unit == 0 || value >= 99.95 ? 0 : 1) + " " + kUnits[unit];
}

std::string wordsForDuration(uint64_t milliseconds) {
  if (milliseconds < kSecond) return std::to_string(milliseconds) + " ms";
  if (milliseconds < kMinute) {
    return std::to_string(milliseconds / kSecond) + "." +
           std::to_string(milliseconds % kSecond / 100) + " s";
  }
  if (milliseconds < kHour) return two(milliseconds, kMinute, "min", kSecond, "s");
  if (milliseconds < kDay) return two(milliseconds, kHour, "h", kMinute, "min");
  return two(milliseconds, kDay, "d", kHour, "h");
}

std::string wordsForMicroseconds(uint64_t microseconds) {
  constexpr uint64_t kMillisecond = 1000;
  if (microseconds < kMillisecond) return std::to_string(microseconds) + " us";
  const uint64_t tenths = microseconds / (kMillisecond / 10);
  if (tenths >= kSecond * 10 || tenths % 10 == 0) {
    return wordsForDuration(microseconds / kMillisecond);
  }
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " ms";
}

std::string wordsForRate(double perSecond) {
  if (perSecond == 0) return "0";
  return decimal(perSecond, perSecond < 1 ? 2 : perSecond < 100 ? 1 : 0);
}

std::string counted(uint64_t number, std::string_view noun) {
  return std::to_string(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

std::string userName(uid_t user) {
  // Name services can be slow, and `top` needs the names for each report.
  static std::map<uid_t, std::string> known;
  const auto found = known.find(user);
  if (found != known.end()) return found->second;
  std::vector<char> buffer(1024);
  passwd entry{};
  passwd* result = nullptr;
  while (::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &result) == ERANGE &&
         buffer.size() < kMostPasswordBytes) {
    buffer.resize(buffer.size() * 2);
  }
  return known[user] = result != nullptr ? entry.pw_name : std::to_string(user);
}

}  // namespace isopool::cli
