// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <termios.h>

#include <cstddef>
#include <string_view>

namespace isopool::cli {

/// True if standard output is a terminal that supports escape sequences.
bool outputIsTerminal();
/// True if output may have colours: outputIsTerminal(), and NO_COLOR is not set.
bool outputHasColours();

/// Writes all of `text` to standard output. Throws SystemCallError if that fails, for example
/// because the disk is full or the reader has closed the pipe.
void writeOut(std::string_view text);

/// Takes over the terminal: an alternate screen, no cursor, no echo, input key by key. The
/// destructor restores the terminal.
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

  /// The present size; 24 x 80 if the terminal does not report one.
  Size size() const;

 private:
  termios before_{};
  bool changedInput_ = false;
};

}  // namespace isopool::cli
