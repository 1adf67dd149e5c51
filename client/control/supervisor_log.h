// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "isopool/observation.h"

namespace isopool::client {

/// The log of a private supervisor, and what its zygote and workers write to their standard
/// streams: isopoold --collect-output writes all of it as lines of JSON to a pipe. For one thread.
class SupervisorLog {
 public:
  struct Line {
    LogLevel level = LogLevel::kInfo;
    std::optional<uint32_t> pool;  ///< of the worker that wrote it; nothing: of no one pool
    std::string text;              ///< says who wrote it
  };

  /// `pipe`: its read end, which does not block; invalid: there is no log.
  explicit SupervisorLog(base::Fd pipe) : pipe_(std::move(pipe)) {}

  /// To wait for lines; -1 if there is no log or it has ended.
  int fd() const { return pipe_.valid() ? pipe_.get() : -1; }
  /// Passes the complete lines that have arrived to `take`, and at the end of the log the rest.
  /// Does not wait; may leave lines for the next call. Throws std::bad_alloc; then lines may be
  /// lost.
  void read(const std::function<void(const Line&)>& take);

 private:
  base::Fd pipe_;
  std::string rest_;  // of a line that is not complete
};

/// A line of the log as the program's logger gets it. A line that is not of isopoold's format, as
/// of a C library that ends the process, becomes a warning.
SupervisorLog::Line parseLogLine(std::string_view line);

}  // namespace isopool::client
