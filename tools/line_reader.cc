// SPDX-License-Identifier: BSD-3-Clause
#include "tools/line_reader.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tools {

namespace {

/// False if a signal interrupted the wait.
bool waitForInput(int fd) {
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  ::sigdelset(&mask, SIGINT);
  pollfd input{fd, POLLIN, 0};
  return ::ppoll(&input, 1, nullptr, &mask) != -1 || errno != EINTR;
}

}  // namespace

LineReader::Got LineReader::next(std::string& line) {
  for (;;) {
    const size_t end = waiting_.find('\n');
    if (end != std::string::npos) {
      line = waiting_.substr(0, end);
      waiting_.erase(0, end + 1);
      return Got::kLine;
    }
    if (!waitForInput(fd_)) {
      waiting_.clear();
      return Got::kInterrupted;
    }
    char buffer[4096];
    const ssize_t count = ::read(fd_, buffer, sizeof buffer);
    if (count > 0) {
      waiting_.append(buffer, static_cast<size_t>(count));
      continue;
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
