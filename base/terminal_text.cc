// SPDX-License-Identifier: BSD-3-Clause
#include "base/terminal_text.h"

#include <langinfo.h>
#include <wchar.h>

#include <algorithm>

#include "base/utf8.h"

namespace isopool::base {

namespace {

// 0: the character must not be shown. Format characters, which change the reading order, have no
// width and so count as such.
int columnsOf(const Character& character, bool utf8) {
  if (!character.valid) return 0;
  if (character.code < 0x80) return character.code >= ' ' && character.code != 0x7F ? 1 : 0;
  if (!utf8) return 0;
  return std::max(0, ::wcwidth(static_cast<wchar_t>(character.code)));
}

}  // namespace

bool localeIsUtf8() { return std::string_view(::nl_langinfo(CODESET)) == "UTF-8"; }

std::string terminalText(std::string_view text, size_t most) {
  constexpr std::string_view kMore = "...";
  const bool utf8 = localeIsUtf8();
  std::string shown;
  size_t columns = 0;
  size_t cut = 0;  // the last position at which "..." still fits
  while (!text.empty()) {
    const Character character = firstCharacter(text);
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
    const Character character = firstCharacter(end);
    columns -= static_cast<size_t>(columnsOf(character, utf8));
    end.remove_prefix(character.bytes);
  }
  return std::string(kLess).append(end);
}

size_t columnsOf(std::string_view text) {
  const bool utf8 = localeIsUtf8();
  size_t columns = 0;
  while (!text.empty()) {
    const Character character = firstCharacter(text);
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
    const Character character = firstCharacter(text.substr(bytes));
    used += static_cast<size_t>(columnsOf(character, utf8));
    if (used > columns) break;
    bytes += character.bytes;
  }
  return text.substr(0, bytes);
}

}  // namespace isopool::base
