// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Numbers and names as text for people.
namespace isopool::cli {

/// "0", "512 B", "4.0 KiB", "12.3 MiB", "512 GiB".
std::string wordsForBytes(uint64_t bytes);
/// "12 ms", "3.2 s", "4 min 10 s", "3 h 20 min", "12 d 4 h".
std::string wordsForDuration(uint64_t milliseconds);
/// The same for shorter times: "50 us", "2.5 ms", "1.2 s".
std::string wordsForMicroseconds(uint64_t microseconds);
/// "0.25", "8.3", "1234".
std::string wordsForRate(double perSecond);
/// "1 call", "2 calls".
std::string counted(uint64_t number, std::string_view noun);

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

/// The name of the user, or the number if the user has no name. Remembers each answer.
std::string userName(uid_t user);

}  // namespace isopool::cli
