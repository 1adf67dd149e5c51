// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>
#include <signal.h>

namespace isopool::base {

/// Blocks all signals in the calling thread while the object lives. A thread that is started
/// meanwhile inherits that and blocks them for its whole life: signals are for the threads of the
/// program. Used by one thread. Allocates nothing and throws nothing.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t previous_;
};

}  // namespace isopool::base
