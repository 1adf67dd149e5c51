// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
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
/// A file that does not exist is created, for its owner to write and its group to read. When the
/// file is renamed or removed, the next line goes to a new file at this path. Returns why it can't
/// be opened; then the error stream is as before. Call it before startLog() the first time.
std::string sendErrorStreamTo(const std::string& path);

/// Closes the file of sendErrorStreamTo(), if there is one; the next line opens it again. For a
/// process that logs rarely, and would keep a file that was removed from being freed.
void releaseLogFile();

/// Changes the threshold.
void setLogLevel(LogLevel level);

/// Writes one line to the error stream. Does not wait: while the stream's reader does not read, or
/// the disk is full, lines are lost (see LostLines), but up to 64 KiB of warnings and errors are
/// written later. A line has at most 4 KiB, so that lines of several processes do not mix in a
/// pipe: a longer message is cut. Invalid UTF-8 and control characters are replaced or escaped. Any
/// thread may call it.
void log(LogLevel level, std::string_view text, std::initializer_list<LogField> fields = {});

/// Writes a line of another process's output; the fields say whose. It is written whatever the
/// threshold is. Else as log(). Returns the bytes of the line.
size_t logOutput(LogLevel level, std::string_view line, std::span<const LogField> fields);
/// The level that a line of another process names by a prefix, "<4>" for a warning (sd-daemon(3)),
/// which is removed from `line`; info if it has none.
LogLevel takeLevel(std::string_view& line);

/// What a line is: its level, or output of another process.
enum class LineKind { kDebug, kInfo, kWarning, kError, kOutput };
inline constexpr std::array<const char*, 5> kLineKindNames{"debug", "info", "warning", "error",
                                                           "output"};
/// Lines by LineKind.
using LostLines = std::array<uint64_t, kLineKindNames.size()>;

/// The lines that the error stream has not taken since this process started. They are reported by a
/// line of their own as soon as the stream takes lines again. Any thread.
LostLines lostLines();
/// `handler` is called when lines have to wait for the error stream, or are lost, after none did:
/// then call continueLog() from time to time. It is called by a thread that logs, and must not log.
/// Null: no handler.
void onLogBehind(std::function<void()> handler);
/// Writes the lines that wait. True if none waits any more, and every loss is reported. Any thread.
bool continueLog();

}  // namespace isopool::base
