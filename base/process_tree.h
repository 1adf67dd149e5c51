// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// Processes that a process has started, with those that these have started, and the memory that
/// they have to themselves. Reads /proc at each call. Any thread.
namespace isopool::base {

struct Descendants {
  std::vector<pid_t> living;  ///< they run, or a signal has stopped them
  uint32_t ended = 0;         ///< dead, and their parent has not waited for them (zombies)
  uint32_t further = 0;       ///< living ones that are not in `living`, because it has `most`
};

/// The processes `roots` without `except` and all their descendants; counts those that live beyond
/// `most`. Looks at each of them, which takes a few microseconds per process. A process whose
/// parent ended is a descendant of the parent's nearest subreaper (PR_SET_CHILD_SUBREAPER).
Descendants descendantsOf(std::span<const pid_t> roots, pid_t except, size_t most);

/// Bytes of a process that belong neither to a file nor to a memory object, resident or swapped
/// out, and page tables beyond what its memory needs. A page that several processes share since a
/// fork counts by its part (1/2 if two processes share it), so that the sum over processes that
/// share it is right. 0 if the process is gone. Takes milliseconds if the process is large. If the
/// kernel denies the exact number, privateBytesAtMost().
uint64_t privateBytes(pid_t pid);

/// The same, but a shared page counts in full. Takes microseconds.
uint64_t privateBytesAtMost(pid_t pid);

}  // namespace isopool::base
