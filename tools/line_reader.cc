// SPDX-License-Identifier: BSD-3-Clause
#include "tools/line_reader.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tools {

LineReader::Got LineReader::next(std::string& line) {
  for (;;) {
    const size_t end = waiting_.find('\n');
    if (end != std::string::npos) {
      line = waiting_.substr(0, end);
      waiting_.erase(0, end + 1);
      return Got::kLine;
    }
    char buffer[4096];
    const ssize_t count = ::read(fd_, buffer, sizeof buffer);
    if (count > 0) {
      waiting_.append(buffer, static_cast<size_t>(count));
      continue;
    }
    if (count == -1 && errno == EINTR) {
      waiting_.clear();
      return Got::kInterrupted;
    }
    if (waiting_.empty()) return Got::kEnd;
    line = std::move(waiting_);
    waiting_.clear();
    return Got::kLine;
  }
}

std::string readAll(int fd) {
  std::string all;
  char buffer[65536];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count == 0) return all;
    if (count > 0) all.append(buffer, static_cast<size_t>(count));
    if (count == -1 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "reading the program from stdin");
    }
  }
}

}  // namespace tools
