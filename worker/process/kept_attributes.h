// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <string>

namespace isopool::worker {

/// Attributes of this process and its main thread that any code can change: working folder, umask,
/// locale, and the thread's signal mask, processors and timer slack. What one program's code sets
/// is not for another's. The main thread.
class KeptAttributes {
 public:
  /// Records them. To be made before any user code runs.
  KeptAttributes();

  /// Sets those that have changed as they were recorded. Returns what could not be set, in words;
  /// empty: nothing.
  std::string restore() const noexcept;

 private:
  std::string folder_;  ///< empty: it is not known
  std::string locale_;
  mode_t umask_;
  sigset_t blocked_{};
  cpu_set_t processors_{};
  int timerSlack_;  ///< nanoseconds by which the kernel may delay the thread's timers
};

}  // namespace isopool::worker
