// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "base/fd.h"

namespace isopool::ipc {

/// Tells whether this process has written to pages of a private file mapping, by the kernel's own
/// books (/proc/self/pagemap). A pagemap belongs to the process that opened it: not for use over a
/// fork.
class PageHistory {
 public:
  PageHistory();
  /// True if a page of [data, data + bytes) was written, or if it can't be told.
  bool written(const void* data, size_t bytes) const;

 private:
  base::Fd pagemap_;
};

}  // namespace isopool::ipc
