// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/without_cancellation.h"

namespace isopool::base {

/// While the object lives, a file or memory object of the calling thread that would grow beyond
/// RLIMIT_FSIZE (ulimit -f) gives the error EFBIG and does not end the process by SIGXFSZ. Used by
/// one thread. Allocates nothing and throws nothing.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() noexcept {
    sigset_t pending;
    ::sigpending(&pending);
    wasPending_ = ::sigismember(&pending, SIGXFSZ) == 1;
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &previous_);
  }
  ~NoFileSizeSignal() {
    const WithoutCancellation complete;
    // The kernel sends it to the thread that makes the call.
    constexpr timespec kNoWait{};
    if (!wasPending_) ::sigtimedwait(&signal_, nullptr, &kNoWait);
    ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  sigset_t signal_;
  sigset_t previous_;
  bool wasPending_;
};

}  // namespace isopool::base
