// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

namespace isopool::base {

/// While it lives, pthread_cancel() has no effect on the calling thread; a cancellation that came
/// meanwhile has effect at the thread's next cancellation point after that, see pthreads(7). For
/// functions that wait or make system calls and may not end in the middle: all destructors and
/// noexcept functions, where a cancellation ends the process, and what several threads have begun
/// together. Destroy it on the same thread, in reverse order.
class WithoutCancellation {
 public:
  WithoutCancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~WithoutCancellation() { ::pthread_setcancelstate(before_, nullptr); }
  WithoutCancellation(const WithoutCancellation&) = delete;
  WithoutCancellation& operator=(const WithoutCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace isopool::base
