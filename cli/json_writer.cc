// SPDX-License-Identifier: BSD-3-Clause
#include "cli/json_writer.h"

#include <array>
#include <charconv>

#include "cli/utf8.h"

namespace isopool::cli {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Also those that JSON would allow as they are: what is printed may reach a terminal.
bool needsEscape(char32_t code) { return code < 0x20 || (code >= 0x7F && code <= 0x9F); }

}  // namespace

JsonWriter& JsonWriter::name(std::string_view name) {
  separate();
  appendText(name);
  text_ += ": ";
  needsComma_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  appendText(text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  std::array<char, 400> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed, 3);
  return plain({text.data(), end.ptr});
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  needsComma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  needsComma_ = true;
  return *this;
}

JsonWriter& JsonWriter::plain(std::string_view text) {
  separate();
  text_ += text;
  return *this;
}

void JsonWriter::separate() {
  if (needsComma_) text_ += ", ";
  needsComma_ = true;
}

void JsonWriter::appendText(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  text_ += '"';
  while (!text.empty()) {
    const Character character = firstCharacter(text);
    if (!character.valid) {
      text_ += kReplacement;
    } else if (character.code == '"' || character.code == '\\') {
      text_ += '\\';
      text_ += text.front();
    } else if (needsEscape(character.code)) {
      text_ += "\\u00";
      text_ += kDigits[character.code >> 4];
      text_ += kDigits[character.code & 15];
    } else {
      text_ += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  text_ += '"';
}

}  // namespace isopool::cli
