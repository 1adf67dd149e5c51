// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace isopool::base {

enum class LogLevel {
  kDebug,    ///< what only somebody wants who looks for a mistake in isopool
  kInfo,     ///< what happens in a healthy pool: clients come and go, a worker is recycled
  kWarning,  ///< something was lost or refused, and isopool has dealt with it
  kError,    ///< somebody has to do something
  kOff       ///< only as a threshold
};

enum class LogFormat {
  kAuto,  ///< text where the error stream is a terminal, otherwise JSON
  kText,  ///< isopoold[PID] HH:MM:SS.mmm LEVEL: MESSAGE key=value ...
  kJson   ///< one JSON object a line: time (UTC), level, pid, message, and the fields
};

/// A fact of a line that a program may want to read: the message itself is for people.
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

/// From now on lines of at least this level reach the error stream, in this format. Before the
/// first call: warnings, as text.
void startLog(LogLevel level, LogFormat format);

void setLogLevel(LogLevel level);

/// Writes one line to the error stream. Never blocks: while nobody reads the stream, lines are
/// dropped. A line has at most 4 KiB, so that those of several processes do not mix in a pipe: a
/// longer message is cut, and what is no UTF-8, or a control character, is replaced or escaped.
void log(LogLevel level, std::string_view text, std::initializer_list<LogField> fields = {});

}  // namespace isopool::base
