// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mutex>
#include <vector>

#include "base/fd.h"
#include "client/process_fork.h"
#include "isopool/async.h"

namespace isopool {

/// The body of a CompletionQueue, kept by the calls that are to end in it. The event is shared with
/// forked processes: there each use throws Error.
class CompletionState {
 public:
  CompletionState();

  void push(uint64_t tag, const Outcome& outcome);
  std::vector<Completed> take();
  int fd() const;

 private:
  void checkNotForked() const { client::checkNotForked(generation_, "CompletionQueue"); }

  const uint32_t generation_ = client::forkGeneration();
  base::Fd event_;  // an eventfd, not zero while completed_ is not empty
  std::mutex mutex_;
  std::vector<Completed> completed_;
};

}  // namespace isopool
