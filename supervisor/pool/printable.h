// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>

namespace isopool::supervisor {

/// The first `longest` bytes of what another process says, with a question mark for each that is no
/// printable ASCII: nobody writes lines of his own into the log, or moves the terminal's cursor.
std::string printable(std::string text, size_t longest);

}  // namespace isopool::supervisor
