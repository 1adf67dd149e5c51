// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/loop/event_loop.h"
#include "base/loop/readiness_watch.h"
#include "base/loop/timer.h"
#include "supervisor/processes/output_quota.h"

namespace isopool::supervisor {

/// Who has written a line of output.
struct OutputSource {
  const char* kind = "worker";      ///< or "zygote"
  pid_t processId = 0;              ///< 0: not known
  std::optional<uint32_t> pool;     ///< of a private supervisor
  std::optional<std::string> slot;  ///< "2", "spare"; nothing: the worker has none any more
  std::string model;                ///< of its present or last call; empty: not known
  bool namesLevels = false;         ///< its lines may begin with a level, see base::takeLevel()
};

/// What one worker, or the zygote, writes to its standard output and error stream. Each line
/// becomes a line of the log with fields that say who wrote it, so that no worker can write a line
/// that looks like one of isopoold's own, and none has a descriptor of the log itself. Above
/// kBytesPerSecond, after a burst of kBurst, lines are dropped, and then a line states how many. A
/// line counts as at least 128 bytes.
///
/// A process that writes waits while the pipe is full, which holds 256 KiB if the system allows it;
/// the loop reads it whenever it runs. Lines that a writer has not ended after a second are logged
/// as they are. Not thread-safe: used on the loop's thread.
class WorkerOutput {
 public:
  static constexpr uint64_t kBytesPerSecond = 64u << 10;
  static constexpr uint64_t kBurst = 1u << 20;

  /// Calls `source` for each line. `quota` must outlive it. Throws base::SystemCallError.
  WorkerOutput(base::EventLoop& loop, OutputQuota& quota, std::function<OutputSource()> source);
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;

  /// The end for the standard streams of the process.
  const base::Fd& writeEnd() const { return ends_.second; }
  /// Closes this process's copy of that end, when the process has it.
  void releaseWriteEnd() { ends_.second.close(); }
  /// Logs what has been written. Call it when the process is dead: the destructor does not.
  void finish();

 private:
  /// Reads at most so many pieces.
  void read(int pieces);
  void take(std::string_view text);
  void endLine();
  void logLine(const std::string& line);
  bool isWithinRate(size_t bytes);
  bool isWithinQuota();
  void drop(OutputQuota::Reason reason, size_t bytes);
  void reportDropped();
  void reportQuota();

  struct Dropped {
    uint64_t lines = 0;
    uint64_t bytes = 0;
  };

  base::EventLoop& loop_;
  OutputQuota& quota_;
  const std::function<OutputSource()> source_;
  std::pair<base::Fd, base::Fd> ends_;  ///< of the pipe: to read, to write
  base::ReadinessWatch watch_;
  base::Timer lineEnd_;
  base::Timer dropReport_;
  bool ended_ = false;  ///< no process has the write end any more
  std::string line_;
  uint64_t budget_ = kBurst;
  base::TimePoint budgetAt_;
  OutputQuota::Share share_;
  Dropped aboveRate_;   ///< not reported yet, as the next
  Dropped aboveQuota_;  ///< in the hour in which it used up its share
};

}  // namespace isopool::supervisor
