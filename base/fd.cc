// SPDX-License-Identifier: BSD-3-Clause
#include "base/fd.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/system_call.h"
#include "base/without_cancellation.h"

namespace isopool::base {

void Fd::close() noexcept {
  if (fd_ < 0) return;
  const WithoutCancellation complete;
  ::close(std::exchange(fd_, -1));
}

Fd Fd::duplicate() const {
  return Fd(checkSystemCall(::fcntl(fd_, F_DUPFD_CLOEXEC, 3), "fcntl(F_DUPFD_CLOEXEC)", fd_));
}

}  // namespace isopool::base
