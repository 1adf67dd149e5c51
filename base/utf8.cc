// SPDX-License-Identifier: BSD-3-Clause
#include "base/utf8.h"

namespace isopool::base {

namespace {

constexpr Character kInvalid{0xFFFD, 1, false};

// The length of the character that begins with this byte, and the bits of its code that the byte
// holds; kInvalid if no character begins with it.
Character leadOf(unsigned char byte) {
  if (byte < 0x80) return {byte, 1, true};
  if (byte >= 0xC2 && byte <= 0xDF) return {byte & 0x1Fu, 2, true};
  if (byte >= 0xE0 && byte <= 0xEF) return {byte & 0x0Fu, 3, true};
  if (byte >= 0xF0 && byte <= 0xF4) return {byte & 0x07u, 4, true};
  return kInvalid;
}

bool isShortest(const Character& character) {
  if (character.bytes == 3) return character.code >= 0x800;
  if (character.bytes == 4) return character.code >= 0x10000;
  return true;
}

}  // namespace

Character firstCharacter(std::string_view text) {
  Character character = leadOf(static_cast<unsigned char>(text.front()));
  if (!character.valid || character.bytes > text.size()) return kInvalid;
  for (size_t index = 1; index < character.bytes; ++index) {
    const auto byte = static_cast<unsigned char>(text[index]);
    if ((byte & 0xC0) != 0x80) return kInvalid;
    character.code = (character.code << 6) | (byte & 0x3Fu);
  }
  const bool surrogate = character.code >= 0xD800 && character.code <= 0xDFFF;
  if (!isShortest(character) || surrogate || character.code > 0x10FFFF) return kInvalid;
  return character;
}

bool isControlCharacter(char32_t code) { return code < 0x20 || (code >= 0x7F && code <= 0x9F); }

}  // namespace isopool::base
