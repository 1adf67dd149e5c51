// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "isopool/batch.h"

namespace isopool::batch {

/// Shows a run to whoever started it. `progress` and `end` are called on one thread, `failure` on
/// others at the same time.
class ProgressView {
 public:
  virtual ~ProgressView() = default;
  virtual void progress(const BatchProgress& progress) = 0;
  virtual void failure(const BatchFailure& failure) = 0;
  /// A line that a worker has printed, with its name. Called on any thread.
  virtual void line(const std::string& text) = 0;
  /// The last call. `line` says how the run ended.
  virtual void end(const BatchSummary& summary, const std::string& line) = 0;
};

/// One line on a terminal that changes, on stderr, and above it the failures.
std::unique_ptr<ProgressView> terminalView();
/// A line every ten seconds on stderr, for a file or a log.
std::unique_ptr<ProgressView> plainView();
/// Each event as a JSON object on one line of stdout, progress once per second:
///   {"event": "progress", "items": ..., "done": ..., "quarantined": ..., "rate": ..., ...}
///   {"event": "failure", "id": ..., "reason": ..., ...}
///   {"event": "output", "text": ...}
///   {"event": "end", "end": ..., "message": ...}
std::unique_ptr<ProgressView> jsonView();

/// "12,345".
std::string grouped(uint64_t number);

}  // namespace isopool::batch
