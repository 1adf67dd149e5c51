// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// How numbers and names are put for people.
namespace isopool::cli {

/// "0", "512 B", "4.0 KiB", "12.3 MiB", "512 GiB".
std::string wordsForBytes(uint64_t bytes);
/// "12 ms", "3.2 s", "4 min 10 s", "3 h 20 min", "12 d 4 h".
std::string wordsForDuration(uint64_t milliseconds);
/// "0.25", "8.3", "1234".
std::string wordsForRate(double perSecond);
/// "1 call", "2 calls".
std::string counted(uint64_t number, std::string_view noun);

/// What another process said, made fit for a terminal: what would move its cursor, change its state
/// or the order of what is read, or is no text in the user's locale, becomes '?'; line ends and
/// tabs become blanks. A text wider than `most` columns ends with "...".
std::string terminalText(std::string_view text, size_t most = SIZE_MAX);
/// The same for a path, of which the end says most: a wide one begins with "...".
std::string terminalPath(std::string_view path, size_t most);
/// Columns that a text takes on a terminal. Of texts that are fit for one.
size_t columnsOf(std::string_view text);
/// The longest beginning that takes no more columns.
std::string_view beginningOf(std::string_view text, size_t columns);

/// The user's name, or his number if he has none.
std::string userName(uid_t user);

}  // namespace isopool::cli
