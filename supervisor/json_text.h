// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace isopool::supervisor {

/// Bytes of the character at the front of a text that is not empty; 0 if that is no UTF-8.
size_t characterLength(std::string_view text);

/// True for those that tell a terminal to do something: U+0000 to U+001F and U+007F to U+009F.
bool isControlCharacter(std::string_view character);

/// Appends the text as a JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD each,
/// so the result is always valid; control characters are escaped, as it may reach a terminal. Of a text that would take more than `most` bytes only the
/// beginning is taken, with "..." behind it.
void appendJsonString(std::string& out, std::string_view text, size_t most = SIZE_MAX);

}  // namespace isopool::supervisor
