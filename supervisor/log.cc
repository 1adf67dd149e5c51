// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/log.h"

#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace isopool::supervisor {

namespace {

// The error stream is the user's: perhaps a pipe that its reader has forgotten. A pipe that polls
// as writable takes PIPE_BUF bytes at once.
class PatientlessStderrSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    pollfd writable{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) return;
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, line.data(), std::min<size_t>(line.size(), PIPE_BUF));
  }
  void flush_() override {}
};

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("isopoold", std::make_shared<PatientlessStderrSink>());
    made.set_pattern("isopoold[%P] %H:%M:%S.%e %l: %v");
    made.set_level(spdlog::level::warn);
    return made;
  }();
  return instance;
}

spdlog::level::level_enum toSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

bool startLog() {
  const char* wanted = std::getenv("ISOPOOL_LOG");
  if (wanted == nullptr || *wanted == '\0') return true;
  const auto level = spdlog::level::from_str(wanted);
  // from_str answers "off" for what it doesn't know.
  if (level == spdlog::level::off && std::string_view(wanted) != "off") return false;
  logger().set_level(level);
  return true;
}

void log(LogLevel level, std::string_view text) { logger().log(toSpdlog(level), text); }

}  // namespace isopool::supervisor
