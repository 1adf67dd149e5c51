// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Texts for a terminal. What is shown depends on the locale that the program has set (LC_CTYPE).
namespace isopool::base {

/// Whether characters beyond ASCII are shown.
bool localeIsUtf8();
/// A text of another process, made safe for a terminal. Each character that would move the cursor,
/// change the state of the terminal or the reading order, or that is not valid in the user's
/// locale, becomes '?'; line ends and tabs become blanks. A text wider than `most` columns is cut
/// and ends with "...".
std::string terminalText(std::string_view text, size_t most = SIZE_MAX);
/// The same for a path. The end of a path matters most, so a wide path is cut at its beginning and
/// begins with "...".
std::string terminalPath(std::string_view path, size_t most);
/// The number of columns that a text takes on a terminal. The text must be safe for a terminal.
size_t columnsOf(std::string_view text);
/// The longest beginning of `text` that takes at most `columns` columns.
std::string_view beginningOf(std::string_view text, size_t columns);

}  // namespace isopool::base
