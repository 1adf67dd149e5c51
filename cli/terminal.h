// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <termios.h>

#include <cstddef>
#include <string_view>

namespace isopool::cli {

/// True if standard output is a terminal that knows escape sequences.
bool outputIsTerminal();
/// True if colours may be used on it: it is one, and NO_COLOR does not forbid them.
bool outputHasColours();

/// Writes all of it to standard output. Throws SystemCallError if that can't be: a full disk, a
/// reader that is gone.
void writeOut(std::string_view text);

/// The terminal while a program has all of it: a screen of its own, no cursor, no echo, keys
/// without the return key. As it was when the object dies.
class Screen {
 public:
  struct Size {
    size_t rows = 24;
    size_t columns = 80;
  };

  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  Size size() const;

 private:
  termios before_{};
  bool changedInput_ = false;
};

}  // namespace isopool::cli
