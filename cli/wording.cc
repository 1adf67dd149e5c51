// SPDX-License-Identifier: BSD-3-Clause
#include "cli/wording.h"

#include <langinfo.h>
#include <pwd.h>
#include <wchar.h>

#include <array>
#include <charconv>
#include <map>
#include <vector>

#include "base/utf8.h"

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

bool localeIsUtf8() { return std::string_view(::nl_langinfo(CODESET)) == "UTF-8"; }

// 0: the character must not be shown. Format characters, which change the reading order, have no
// width and so count as such.
int columnsOf(const base::Character& character, bool utf8) {
  if (!character.valid) return 0;
  if (character.code < 0x80) return character.code >= ' ' && character.code != 0x7F ? 1 : 0;
  if (!utf8) return 0;
  return std::max(0, ::wcwidth(static_cast<wchar_t>(character.code)));
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

std::string terminalText(std::string_view text, size_t most) {
  constexpr std::string_view kMore = "...";
  const bool utf8 = localeIsUtf8();
  std::string shown;
  size_t columns = 0;
  size_t cut = 0;  // the last position at which "..." still fits
  while (!text.empty()) {
    const base::Character character = base::firstCharacter(text);
    int width = columnsOf(character, utf8);
    std::string_view piece = text.substr(0, character.bytes);
    if (width == 0) {
      piece = character.code == '\n' || character.code == '\t' ? " " : "?";
      width = 1;
    }
    if (columns + static_cast<size_t>(width) > most) {
      shown.resize(cut);
      return shown += kMore.substr(0, most);
    }
    shown += piece;
    columns += static_cast<size_t>(width);
    if (columns + kMore.size() <= most) cut = shown.size();
    text.remove_prefix(character.bytes);
  }
  return shown;
}

std::string terminalPath(std::string_view path, size_t most) {
  constexpr std::string_view kLess = "...";
  const std::string whole = terminalText(path);
  const bool utf8 = localeIsUtf8();
  size_t columns = columnsOf(whole);
  if (columns <= most) return whole;
  std::string_view end = whole;
  while (!end.empty() && columns + kLess.size() > most) {
    const base::Character character = base::firstCharacter(end);
    columns -= static_cast<size_t>(columnsOf(character, utf8));
    end.remove_prefix(character.bytes);
  }
  return std::string(kLess).append(end);
}

size_t columnsOf(std::string_view text) {
  const bool utf8 = localeIsUtf8();
  size_t columns = 0;
  while (!text.empty()) {
    const base::Character character = base::firstCharacter(text);
    columns += static_cast<size_t>(columnsOf(character, utf8));
    text.remove_prefix(character.bytes);
  }
  return columns;
}

std::string_view beginningOf(std::string_view text, size_t columns) {
  const bool utf8 = localeIsUtf8();
  size_t bytes = 0;
  size_t used = 0;
  while (bytes < text.size()) {
    const base::Character character = base::firstCharacter(text.substr(bytes));
    used += static_cast<size_t>(columnsOf(character, utf8));
    if (used > columns) break;
    bytes += character.bytes;
  }
  return text.substr(0, bytes);
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
