// SPDX-License-Identifier: BSD-3-Clause
#include "base/log/error_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/fd.h"

namespace isopool::base {

namespace {

constexpr size_t kMostKept = 64u << 10;
constexpr mode_t kFileMode = 0640;
constexpr const char* kThisStream = "/proc/self/fd/2";

// How many bytes the stream has taken, and why it did not take more; 0: it may take more.
struct Written {
  size_t bytes = 0;
  int error = 0;
};

Written outcomeOf(ssize_t result) {
  if (result > 0) return {static_cast<size_t>(result), 0};
  return {0, result == 0 ? ENOSPC : errno};
}

// Opens a pipe or a terminal once more: then a write does not wait, whatever other processes write
// there. Descriptor 2 itself can't be made so: these processes have it, too. Another user's stream
// can't be opened, nor any without a free descriptor: if it polls as writable it takes a line
// without waiting, unless another process is quicker.
Written writeWithoutWaiting(std::string_view bytes) {
  const Fd own(::open(kThisStream, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  pollfd stream{own.valid() ? own.get() : STDERR_FILENO, POLLOUT, 0};
  if (::poll(&stream, 1, 0) < 0) return {0, errno};
  if ((stream.revents & POLLERR) != 0) return {0, EPIPE};
  if (!own.valid() && (stream.revents & POLLOUT) == 0) return {0, EAGAIN};
  return outcomeOf(::write(stream.fd, bytes.data(), bytes.size()));
}

Written writeOnce(const struct stat& status, std::string_view bytes) {
  if (S_ISSOCK(status.st_mode)) {
    return outcomeOf(
        ::send(STDERR_FILENO, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) return writeWithoutWaiting(bytes);
  return outcomeOf(::write(STDERR_FILENO, bytes.data(), bytes.size()));
}

// Writes as much as the stream takes now.
Written writeAll(std::string_view bytes) {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0) return {0, errno};
  Written all;
  while (all.bytes < bytes.size()) {
    const Written one = writeOnce(status, bytes.substr(all.bytes));
    if (one.error == EINTR) continue;
    all.bytes += one.bytes;
    all.error = one.error;
    if (one.error != 0) break;
  }
  return all;
}

// True if the stream is a file whose last byte is not the end of a line.
bool endsWithinLine() {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    return false;
  }
  const Fd file(::open(kThisStream, O_RDONLY | O_CLOEXEC));
  char last = '\n';
  return file.valid() && ::pread(file.get(), &last, 1, status.st_size - 1) == 1 && last != '\n';
}

// The size of the stream, if it is a file; else always the same.
off_t sizeOfFile() {
  struct stat status {};
  return ::fstat(STDERR_FILENO, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : 0;
}

std::string reasonOf(int error) {
  if (error == EAGAIN) return "the log's reader does not read";
  if (error == EPIPE) return "the log has no reader";
  return std::strerror(error);
}

std::string wordsFor(std::chrono::system_clock::time_point time) {
  const time_t seconds = std::chrono::system_clock::to_time_t(time);
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace

void ErrorStream::begin() {
  // The other file has a part of the first line, this one gets all of it.
  if (!kept_.empty()) kept_.front().written = 0;
  lastLineIsOpen_ = endsWithinLine();
}

std::string ErrorStream::sendTo(const std::string& path) {
  std::string before = std::exchange(path_, path);
  std::string problem = openPath();
  if (!problem.empty()) path_ = std::move(before);
  return problem;
}

void ErrorStream::releaseFile() {
  if (path_.empty()) return;
  const Fd none(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (none.valid()) ::dup2(none.get(), STDERR_FILENO);
}

std::string ErrorStream::openPath() {
  // O_NONBLOCK: the reader of a named pipe is not waited for.
  const Fd file(::open(
      path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, kFileMode));
  if (!file.valid() || ::dup2(file.get(), STDERR_FILENO) == -1) {
    return path_ + ": " +
           (errno == ENXIO ? "it is a named pipe that no process reads" : std::strerror(errno));
  }
  pathProblem_.clear();
  unlinked_ = false;
  begin();
  return {};
}

void ErrorStream::followPath() {
  if (path_.empty()) return;
  struct stat ours {};
  struct stat named {};
  if (::fstat(STDERR_FILENO, &ours) != 0) return;
  if (::stat(path_.c_str(), &named) == 0 && named.st_dev == ours.st_dev &&
      named.st_ino == ours.st_ino) {
    return;
  }
  const std::string problem = openPath();
  if (problem.empty()) return;
  unlinked_ = ours.st_nlink == 0;
  if (std::exchange(pathProblem_, problem) != problem && !unlinked_) {
    keep({makeWarning_(
        "the log file can't be opened again, the log goes to the old one: " + problem, nullptr)});
  }
}

void ErrorStream::write(std::string line, LineKind kind) {
  followPath();
  Kept own{std::move(line)};
  if (writeKept() && put(own)) return;
  const bool important = kind == LineKind::kWarning || kind == LineKind::kError;
  // A line that was begun has to be ended.
  if (own.written > 0 || (important && keptBytes_ + own.line.size() <= kMostKept)) {
    return keep(std::move(own));
  }
  lose(kind, failure_);
}

void ErrorStream::lose(LineKind kind, const std::string& reason) {
  if (lossReported_ == lost_) {
    lossSince_ = std::chrono::system_clock::now();
    lossReason_ = reason;
  }
  ++lost_[static_cast<size_t>(kind)];
}

bool ErrorStream::continueWriting() {
  followPath();
  return writeKept();
}

// False if the stream takes no further line now.
bool ErrorStream::writeKept() {
  if (unlinked_) {
    failure_ = pathProblem_;
    return false;
  }
  if (!endLastLine()) return false;
  while (!kept_.empty()) {
    if (!put(kept_.front())) return false;
    keptBytes_ -= kept_.front().line.size();
    kept_.pop_front();
  }
  if (lossReported_ == lost_) return true;
  LostLines lines{};
  for (size_t kind = 0; kind < lines.size(); ++kind)
    lines[kind] = lost_[kind] - lossReported_[kind];
  Kept report{makeWarning_(lossText(lines), &lines)};
  const bool whole = put(report);
  if (whole || report.written > 0) lossReported_ = lost_;
  if (!whole && report.written > 0) keep(std::move(report));
  return whole;
}

bool ErrorStream::endLastLine() {
  // Another process has written behind a part of the first line, or has cut the file.
  if (!kept_.empty() && kept_.front().written > 0 && sizeOfFile() != sizeWhenTorn_) begin();
  if (!lastLineIsOpen_) return true;
  const Written end = writeAll("\n");
  if (end.error != 0) failure_ = reasonOf(end.error);
  lastLineIsOpen_ = end.bytes == 0;
  return !lastLineIsOpen_;
}

// True if the stream has taken the whole line.
bool ErrorStream::put(Kept& kept) {
  const Written written = writeAll(std::string_view(kept.line).substr(kept.written));
  kept.written += written.bytes;
  if (kept.written == kept.line.size()) return true;
  failure_ = reasonOf(written.error);
  if (kept.written > 0) sizeWhenTorn_ = sizeOfFile();
  return false;
}

void ErrorStream::keep(Kept kept) {
  keptBytes_ += kept.line.size();
  kept_.push_back(std::move(kept));
}

std::string ErrorStream::lossText(const LostLines& lines) const {
  const uint64_t all = std::accumulate(lines.begin(), lines.end(), uint64_t{0});
  return std::to_string(all) + (all == 1 ? " line" : " lines") + " of the log " +
         (all == 1 ? "was" : "were") + " lost since " + wordsFor(lossSince_) +
         ", because: " + lossReason_;
}

}  // namespace isopool::base
