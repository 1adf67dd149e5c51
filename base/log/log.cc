// SPDX-License-Identifier: BSD-3-Clause
#include "base/log/log.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "base/json.h"
#include "base/utf8.h"

namespace isopool::base {

namespace {

constexpr const char* kTextPattern = "isopoold[%P] %H:%M:%S.%e %l: %v";
constexpr const char* kJsonPattern =
    R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","pid":%P,"message":%v})";

// The part of PIPE_BUF that the patterns above leave for message and fields.
constexpr size_t kMostPayload = PIPE_BUF - 160;
constexpr size_t kMostFieldText = 512;
constexpr size_t kLeastMessage = 256;

bool streamIsJournal = false;

// The service manager names device and inode of the stream that its journal reads, as the process
// may have another one by now (systemd.exec(5)).
bool errorStreamIsJournal() {
  const char* named = std::getenv("JOURNAL_STREAM");
  struct stat status {};
  if (named == nullptr || ::fstat(STDERR_FILENO, &status) != 0) return false;
  return named == std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

// The prefix by which the journal learns a line's priority (sd-daemon(3)).
std::string_view priorityOf(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::err:
    case spdlog::level::critical:
      return "<3>";
    case spdlog::level::warn:
      return "<4>";
    case spdlog::level::info:
      return "<6>";
    default:
      return "<7>";
  }
}

// The error stream belongs to the user: it may be a pipe whose reader does not read. A pipe that
// polls as writable takes PIPE_BUF bytes without blocking.
class PatientlessStderrSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    if (streamIsJournal) {
      const std::string_view priority = priorityOf(message.level);
      line.append(priority.data(), priority.data() + priority.size());
    }
    formatter_->format(message, line);
    pollfd writable{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) return;
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, line.data(), std::min<size_t>(line.size(), PIPE_BUF));
  }
  void flush_() override {}
};

LogFormat formatNow = LogFormat::kText;

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("isopoold", std::make_shared<PatientlessStderrSink>());
    made.set_pattern(kTextPattern);
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
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::err;
}

bool needsQuotes(std::string_view text) {
  return text.empty() || std::any_of(text.begin(), text.end(), [](char each) {
           const auto byte = static_cast<unsigned char>(each);
           return byte <= ' ' || byte >= 0x7F || byte == '"' || byte == '=' || byte == '\\';
         });
}

std::string spelled(const LogField& field, LogFormat format) {
  std::string out;
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    if (format == LogFormat::kText && !needsQuotes(*text) && text->size() <= kMostFieldText) {
      return std::string(*text);
    }
    out = jsonString(*text, kMostFieldText);
  } else if (const auto* truth = std::get_if<bool>(&field.value)) {
    out = *truth ? "true" : "false";
  } else if (const auto* number = std::get_if<int64_t>(&field.value)) {
    out = std::to_string(*number);
  } else {
    out = std::to_string(std::get<uint64_t>(field.value));
  }
  return out;
}

// The text of the fields that fit into a line, as they follow the message.
std::string spelled(std::span<const LogField> fields, LogFormat format) {
  std::string out;
  for (const LogField& field : fields) {
    std::string one;
    if (format == LogFormat::kJson) {
      one.append(",").append(jsonString(field.key)).append(":");
    } else {
      one = " ";
      one += field.key;
      one += '=';
    }
    one += spelled(field, format);
    if (out.size() + one.size() <= kMostPayload - kLeastMessage) out += one;
  }
  return out;
}

// Makes a text that may come from another process safe for a terminal. Control characters are
// replaced, and so are bytes that are not UTF-8: a terminal that reads eight-bit characters could
// take one for a control character. A line after a line break begins with spaces, so that it can't
// look like a line of the log. A text longer than `most` bytes is cut between two characters.
std::string harmless(std::string_view text, size_t most) {
  constexpr std::string_view kMore = "...";
  std::string out;
  size_t cut = 0;
  while (!text.empty()) {
    const Character first = firstCharacter(text);
    const std::string_view character = text.substr(0, first.bytes);
    if (character == "\n") {
      out += "\n    ";
    } else if (!first.valid || isControlCharacter(first.code)) {
      out += '?';
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
    if (out.size() + kMore.size() <= most) cut = out.size();
    if (out.size() > most) return out.substr(0, cut).append(kMore);
  }
  return out;
}

std::string payload(std::string_view text, std::span<const LogField> fields, LogFormat format) {
  const std::string behind = spelled(fields, format);
  const size_t most = kMostPayload - behind.size();
  return (format == LogFormat::kJson ? jsonString(text, most) : harmless(text, most)) + behind;
}

}  // namespace

void startLog(LogLevel level, LogFormat format) {
  if (format == LogFormat::kAuto) {
    format = ::isatty(STDERR_FILENO) == 1 ? LogFormat::kText : LogFormat::kJson;
  }
  formatNow = format;
  streamIsJournal = errorStreamIsJournal();
  if (format == LogFormat::kJson) {
    logger().set_pattern(kJsonPattern, spdlog::pattern_time_type::utc);
  } else {
    logger().set_pattern(kTextPattern);
  }
  setLogLevel(level);
}

std::string sendErrorStreamTo(const std::string& path) {
  constexpr mode_t kMode = 0640;
  const Fd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, kMode));
  if (!file.valid() || ::dup2(file.get(), STDERR_FILENO) == -1) {
    return path + ": " + std::strerror(errno);
  }
  return {};
}

void setLogLevel(LogLevel level) { logger().set_level(toSpdlog(level)); }

void log(LogLevel level, std::string_view text, std::initializer_list<LogField> fields) {
  if (!logger().should_log(toSpdlog(level))) return;
  logger().log(toSpdlog(level),
               spdlog::string_view_t(payload(text, {fields.begin(), fields.size()}, formatNow)));
}

void logOutput(std::string_view line, std::span<const LogField> fields) {
  const std::string text = payload(line, fields, formatNow);
  // Past the logger, which has the threshold.
  const spdlog::details::log_msg message(logger().name(), spdlog::level::info,
                                         spdlog::string_view_t(text));
  for (const auto& sink : logger().sinks()) sink->log(message);
}

}  // namespace isopool::base
