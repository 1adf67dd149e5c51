// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace tools {

/// Lines of a descriptor, one at a time: what comes after a line stays for others to read where the
/// kernel hands out lines, as a terminal does. One thread, which keeps SIGINT blocked: it is let in
/// only while next() waits, so that none is lost shortly before.
class LineReader {
 public:
  enum class Got {
    kLine,
    kEnd,          ///< nothing more comes
    kInterrupted,  ///< a signal was handled; what was typed of the line is dropped
  };

  explicit LineReader(int fd) : fd_(fd) {}

  /// Waits for a line and stores it without its newline.
  Got next(std::string& line);

 private:
  int fd_;
  std::string waiting_;
};

/// All that is left to read. Throws std::system_error.
std::string readAll(int fd);

}  // namespace tools
