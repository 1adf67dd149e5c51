// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace tools {

/// Reads lines from a descriptor. A terminal gives one line per read, so the following lines stay
/// there for other readers. For one thread, which keeps SIGINT blocked: next() unblocks it only
/// while it waits, so that a SIGINT shortly before the wait is not lost.
class LineReader {
 public:
  enum class Got {
    kLine,
    kEnd,          ///< end of the input
    kInterrupted,  ///< a signal was handled; the begun line is dropped
  };

  explicit LineReader(int fd) : fd_(fd) {}

  /// Waits for a line and stores it without its newline.
  Got next(std::string& line);

 private:
  int fd_;
  std::string waiting_;
};

/// Reads to the end of the input. Throws std::system_error.
std::string readAll(int fd);

}  // namespace tools
