// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string_view>

namespace isopool::base {

/// What stands at the front of a text.
struct Character {
  char32_t code = 0;
  size_t bytes = 1;
  bool valid = true;  ///< false: a byte that is no UTF-8
};

/// The first character of a text that is not empty. Overlong forms, surrogates and what is above
/// U+10FFFF are no UTF-8; each byte of those is a character that is not valid.
Character firstCharacter(std::string_view text);

/// True for what makes a terminal do something: U+0000 to U+001F and U+007F to U+009F.
bool isControlCharacter(char32_t code);

}  // namespace isopool::base
