// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string_view>

namespace isopool::cli {

/// What stands at the front of a text.
struct Character {
  char32_t code = 0;
  size_t bytes = 1;
  bool valid = true;  ///< false: a byte that is no UTF-8
};

/// The first character of a text that is not empty. Overlong forms, surrogates and what is above
/// U+10FFFF are no UTF-8; each byte of those is a character that is not valid.
Character firstCharacter(std::string_view text);

}  // namespace isopool::cli
