// SPDX-License-Identifier: BSD-3-Clause
#include "base/log/log.h"

#include <spdlog/details/log_msg.h>
#include <spdlog/pattern_formatter.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log/error_stream.h"
#include "base/mutex.h"
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

// The service manager names device and inode of the stream that its journal reads, as the process
// may have another one by now (systemd.exec(5)).
bool errorStreamIsJournal() {
  const char* named = std::getenv("JOURNAL_STREAM");
  struct stat status {};
  if (named == nullptr || ::fstat(STDERR_FILENO, &status) != 0) return false;
  return named == std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

// The prefix by which the journal learns a line's priority (sd-daemon(3)).
std::string_view priorityOf(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "<3>";
    case LogLevel::kWarning:
      return "<4>";
    case LogLevel::kInfo:
      return "<6>";
    default:
      return "<7>";
  }
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

LineKind kindOf(LogLevel level) { return static_cast<LineKind>(level); }

/// The log of this process. Any thread.
class Log {
 public:
  void start(LogFormat format) {
    const MutexLock lock(mutex_);
    format_ = format;
    journal_ = errorStreamIsJournal();
    formatter_ = format == LogFormat::kJson
                     ? std::make_unique<spdlog::pattern_formatter>(kJsonPattern,
                                                                   spdlog::pattern_time_type::utc)
                     : std::make_unique<spdlog::pattern_formatter>(kTextPattern);
    stream_.begin();
  }
  std::string sendTo(const std::string& path) {
    const MutexLock lock(mutex_);
    return stream_.sendTo(path);
  }
  void releaseFile() {
    const MutexLock lock(mutex_);
    stream_.releaseFile();
  }
  void setLevel(LogLevel level) { level_ = level; }
  bool takes(LogLevel level) const { return level >= level_; }

  /// Returns the bytes of the line. Does not throw: a line for which there is no memory is lost.
  size_t write(LogLevel level, LineKind kind, std::string_view text,
               std::span<const LogField> fields) noexcept {
    MutexLock lock(mutex_);
    const bool wasBehind = stream_.isBehind();
    size_t bytes = 0;
    try {
      std::string line = made(level, text, fields);
      bytes = line.size();
      stream_.write(std::move(line), kind);
    } catch (const std::exception& error) {
      stream_.lose(kind, error.what());
    }
    if (!wasBehind && stream_.isBehind() && onBehind_) onBehind_();
    return bytes;
  }

  LostLines lost() {
    const MutexLock lock(mutex_);
    return stream_.lost();
  }
  void onBehind(std::function<void()> handler) {
    const MutexLock lock(mutex_);
    onBehind_ = std::move(handler);
  }
  bool continueWriting() {
    const MutexLock lock(mutex_);
    return stream_.continueWriting();
  }

 private:
  std::string made(LogLevel level, std::string_view text, std::span<const LogField> fields)
      ISOPOOL_REQUIRES(mutex_) {
    const std::string content = payload(text, fields, format_);
    const spdlog::details::log_msg message("isopoold", toSpdlog(level),
                                           spdlog::string_view_t(content));
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string made(journal_ ? priorityOf(level) : "");
    made.append(line.data(), line.size());
    return made;
  }
  std::string warning(const std::string& text, const LostLines* lost) ISOPOOL_LOCKS_UNCHECKED {
    std::vector<LogField> fields;
    for (size_t kind = 0; lost != nullptr && kind < lost->size(); ++kind) {
      if ((*lost)[kind] != 0) fields.emplace_back(kLostNames[kind], (*lost)[kind]);
    }
    return made(LogLevel::kWarning, text, fields);
  }

  static constexpr std::array<const char*, kLineKindNames.size()> kLostNames{
      "lost_debug", "lost_info", "lost_warning", "lost_error", "lost_output"};

  std::atomic<LogLevel> level_{LogLevel::kWarning};
  Mutex mutex_;
  LogFormat format_ ISOPOOL_GUARDED_BY(mutex_) = LogFormat::kText;
  bool journal_ ISOPOOL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<spdlog::pattern_formatter> formatter_ ISOPOOL_GUARDED_BY(mutex_) =
      std::make_unique<spdlog::pattern_formatter>(kTextPattern);
  // Called under the mutex, by the stream's members.
  ErrorStream stream_ ISOPOOL_GUARDED_BY(mutex_){
      [this](const std::string& text, const LostLines* lost) { return warning(text, lost); }};
  std::function<void()> onBehind_ ISOPOOL_GUARDED_BY(mutex_);
};

// Never destroyed: other threads may log until the process ends.
Log& theLog() {
  static Log& instance = *new Log;
  return instance;
}

}  // namespace

void startLog(LogLevel level, LogFormat format) {
  if (format == LogFormat::kAuto) {
    format = ::isatty(STDERR_FILENO) == 1 ? LogFormat::kText : LogFormat::kJson;
  }
  theLog().start(format);
  setLogLevel(level);
}

std::string sendErrorStreamTo(const std::string& path) { return theLog().sendTo(path); }

void releaseLogFile() { theLog().releaseFile(); }

void setLogLevel(LogLevel level) { theLog().setLevel(level); }

void log(LogLevel level, std::string_view text, std::initializer_list<LogField> fields) {
  if (!theLog().takes(level)) return;
  theLog().write(level, kindOf(level), text, {fields.begin(), fields.size()});
}

size_t logOutput(LogLevel level, std::string_view line, std::span<const LogField> fields) {
  return theLog().write(level, LineKind::kOutput, line, fields);
}

LogLevel takeLevel(std::string_view& line) {
  constexpr size_t kPrefix = 3;
  if (line.size() < kPrefix || line[0] != '<' || line[1] < '0' || line[1] > '7' || line[2] != '>') {
    return LogLevel::kInfo;
  }
  const char priority = line[1];
  line.remove_prefix(kPrefix);
  if (priority <= '3') return LogLevel::kError;
  if (priority == '4') return LogLevel::kWarning;
  return priority == '7' ? LogLevel::kDebug : LogLevel::kInfo;
}

LostLines lostLines() { return theLog().lost(); }

void onLogBehind(std::function<void()> handler) { theLog().onBehind(std::move(handler)); }

bool continueLog() { return theLog().continueWriting(); }

}  // namespace isopool::base
