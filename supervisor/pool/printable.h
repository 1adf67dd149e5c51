// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>

namespace isopool::supervisor {

/// Returns the first `longest` bytes of another process's text, with a question mark for each byte
/// that is not printable ASCII: the text can't add lines to the log, or move the terminal's cursor.
std::string printable(std::string text, size_t longest);

}  // namespace isopool::supervisor
