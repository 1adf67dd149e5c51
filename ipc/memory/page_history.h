// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "base/fd.h"

namespace isopool::ipc {

/// Finds out whether this process has written to pages of a private file mapping, from the kernel's
/// page table (/proc/self/pagemap). A pagemap belongs to the process that opened it, so a forked
/// child needs an object of its own.
class PageHistory {
 public:
  /// Does not throw: without a pagemap, written() always returns true.
  PageHistory();
  /// True if a page of [data, data + bytes) was written, or if the pagemap can't be read. The range
  /// is part of a private file mapping. A thread that writes meanwhile may be missed. Takes one
  /// system call for each 2 MiB. Any thread.
  bool written(const void* data, size_t bytes) const;

 private:
  base::Fd pagemap_;
};

}  // namespace isopool::ipc
