// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/json_text.h"

#include <array>

namespace isopool::supervisor {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kMore = "...\"";

struct LeadByte {
  unsigned char first, last;            // of the lead byte
  unsigned char secondLow, secondHigh;  // narrower than 80..BF where a longer form would be wrong
  size_t length;
};

// Table 3-7 of the Unicode standard: no overlong forms, no surrogates, nothing above U+10FFFF.
constexpr std::array<LeadByte, 8> kSequences{{{0xC2, 0xDF, 0x80, 0xBF, 2},
                                              {0xE0, 0xE0, 0xA0, 0xBF, 3},
                                              {0xE1, 0xEC, 0x80, 0xBF, 3},
                                              {0xED, 0xED, 0x80, 0x9F, 3},
                                              {0xEE, 0xEF, 0x80, 0xBF, 3},
                                              {0xF0, 0xF0, 0x90, 0xBF, 4},
                                              {0xF1, 0xF3, 0x80, 0xBF, 4},
                                              {0xF4, 0xF4, 0x80, 0x8F, 4}}};

bool between(unsigned char byte, unsigned char low, unsigned char high) {
  return byte >= low && byte <= high;
}

}  // namespace

size_t characterLength(std::string_view text) {
  const auto at = [&](size_t index) { return static_cast<unsigned char>(text[index]); };
  if (at(0) < 0x80) return 1;
  for (const LeadByte& each : kSequences) {
    if (!between(at(0), each.first, each.last)) continue;
    if (text.size() < each.length || !between(at(1), each.secondLow, each.secondHigh)) return 0;
    for (size_t index = 2; index < each.length; ++index) {
      if (!between(at(index), 0x80, 0xBF)) return 0;
    }
    return each.length;
  }
  return 0;
}

bool isControlCharacter(std::string_view character) {
  const auto last = static_cast<unsigned char>(character.back());
  if (character.size() == 1) return last < 0x20 || last == 0x7F;
  return character.size() == 2 && character[0] == '\xC2' && last <= 0x9F;
}

namespace {

std::string escaped(std::string_view character) {
  switch (character[0]) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  if (!isControlCharacter(character)) return std::string(character);
  // Of U+0080 to U+009F the second byte is the number.
  const auto byte = static_cast<unsigned char>(character.back());
  constexpr char kDigits[] = "0123456789abcdef";
  return std::string("\\u00") + kDigits[byte >> 4] + kDigits[byte & 15];
}

}  // namespace

void appendJsonString(std::string& out, std::string_view text, size_t most) {
  const size_t start = out.size();
  out += '"';
  // Where a text that turns out too long is cut, so that "..." still fits.
  size_t cut = out.size();
  while (!text.empty()) {
    const size_t length = characterLength(text);
    out += length == 0 ? std::string(kReplacement) : escaped(text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
    const size_t used = out.size() - start;
    if (used + kMore.size() <= most) cut = out.size();
    if (used + 1 > most) {
      out.resize(cut);
      out += kMore;
      return;
    }
  }
  out += '"';
}

}  // namespace isopool::supervisor
