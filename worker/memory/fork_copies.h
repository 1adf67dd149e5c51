// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool::worker {

struct ChannelMemory;

/// What a fork by user code does with the tensors in memory that this worker shares with clients:
/// inputs, and whatever lies in blocks for results. The child gets a private copy of each, as of
/// all other memory: what it writes reaches neither the worker nor a caller, and it does not see
/// what they write later. The copies are made in the thread that forks, before the fork; moved
/// objects stay shared with all workers. vfork() and posix_spawn() copy nothing.
///
/// If these tensors are larger than the limit together, or there is no memory for the copies, the
/// child gets none of them: an access is a segmentation fault there, and the worker's error stream
/// has the reason. With a limit of 0, the child shares them.

/// Installs the handlers (pthread_atfork). `limit`: bytes, ISOPOOL_FORK_COPY_LIMIT. Call once per
/// process, before it has channels.
void copyTensorsInForks(uint64_t limit);

/// While it lives, forked children get copies of the channel's tensors. Any thread.
class CopiedInForks {
 public:
  /// `memory` must outlive it.
  explicit CopiedInForks(ChannelMemory& memory);
  ~CopiedInForks();
  CopiedInForks(const CopiedInForks&) = delete;
  CopiedInForks& operator=(const CopiedInForks&) = delete;

 private:
  ChannelMemory& memory_;
};

}  // namespace isopool::worker
