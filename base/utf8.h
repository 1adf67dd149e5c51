// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string_view>

namespace isopool::base {

/// The character at the front of a text.
struct Character {
  char32_t code = 0;
  size_t bytes = 1;
  bool valid = true;  ///< false: one byte that is not part of valid UTF-8
};

/// The first character of a text, which must not be empty. Overlong forms, surrogates and codes
/// above U+10FFFF are invalid; each byte of them counts as one invalid character.
Character firstCharacter(std::string_view text);

/// True for the characters that can control a terminal: U+0000 to U+001F and U+007F to U+009F.
bool isControlCharacter(char32_t code);

}  // namespace isopool::base
