// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>

#include "base/fd.h"

namespace isopool::worker {

/// The standard streams of this process as they were before user code ran. User code may close
/// them, and what another program's code opens then gets their numbers: its file would get what is
/// printed. One thread.
class KeptStreams {
 public:
  /// Duplicates the streams that are open. To be made before any user code runs.
  KeptStreams();

  /// Puts each stream back in its place that is closed or another file now, and gives it its flags
  /// again. False if that is not possible, because user code has closed the duplicate, too.
  bool restore() const noexcept;

 private:
  struct Stream {
    base::Fd duplicate;  ///< invalid: the stream was closed from the start, or there was no room
    int flags = 0;       ///< F_GETFL: O_NONBLOCK, for example
    dev_t device = 0;
    ino_t node = 0;
  };
  std::array<Stream, 3> streams_;  ///< by descriptor
};

}  // namespace isopool::worker
