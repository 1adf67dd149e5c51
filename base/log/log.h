// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace isopool::base {

enum class LogLevel {
  kDebug,    ///< for debugging isopool itself
  kInfo,     ///< events of a healthy pool: a client connects or leaves, a worker is recycled
  kWarning,  ///< something was lost or refused, and isopool has handled it
  kError,    ///< an operator has to act
  kOff       ///< only as a threshold: no line at all
};

enum class LogFormat {
  kAuto,  ///< text if the error stream is a terminal, otherwise JSON
  kText,  ///< isopoold[PID] HH:MM:SS.mmm LEVEL: MESSAGE key=value ...
  kJson   ///< one JSON object a line: time (UTC), level, pid, message, and the fields
};

/// A key and a value of a log line, for programs that read the log. The message itself is for
/// people. Refers to the caller's strings: they must live until log() returns.
struct LogField {
  LogField(std::string_view name, std::string_view text) : key(name), value(text) {}
  LogField(std::string_view name, const char* text) : key(name), value(std::string_view(text)) {}
  LogField(std::string_view name, const std::string& text)
      : key(name), value(std::string_view(text)) {}
  LogField(std::string_view name, bool truth) : key(name), value(truth) {}
  template <std::signed_integral Number>
  LogField(std::string_view name, Number number) : key(name), value(int64_t{number}) {}
  template <std::unsigned_integral Number>
  requires(!std::same_as<Number, bool>) LogField(std::string_view name, Number number)
      : key(name), value(uint64_t{number}) {}

  std::string_view key;
  std::variant<std::string_view, int64_t, uint64_t, bool> value;
};

/// Sets the threshold and the format of all further lines. If the error stream is systemd's journal
/// (JOURNAL_STREAM), each line begins with its priority for the journal, "<4>" for a warning.
/// Before the first call, warnings and errors are written as text. No other thread may log
/// meanwhile.
void startLog(LogLevel level, LogFormat format);

/// Makes the file at `path` this process's error stream: all lines from now on are appended to it.
/// A file that does not exist is created, for its owner to write and its group to read. Returns why
/// that failed; then the error stream is as before. Call it again when the file was renamed, and
/// before startLog() the first time.
std::string sendErrorStreamTo(const std::string& path);

/// Changes the threshold.
void setLogLevel(LogLevel level);

/// Writes one line to the error stream. Never blocks: while the stream's reader does not read,
/// lines are dropped. A line has at most 4 KiB, so that lines of several processes do not mix in a
/// pipe: a longer message is cut. Invalid UTF-8 and control characters are replaced or escaped. Any
/// thread may call it.
void log(LogLevel level, std::string_view text, std::initializer_list<LogField> fields = {});

/// Writes a line of another process's output; the fields say whose. It has level info, and is
/// written whatever the threshold is. Else as log().
void logOutput(std::string_view line, std::span<const LogField> fields);

}  // namespace isopool::base
