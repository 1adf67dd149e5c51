// SPDX-License-Identifier: BSD-3-Clause
#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace isopool::base {

Fd awayFromStandardStreams(Fd fd) noexcept {
  if (!fd.valid() || fd.get() > STDERR_FILENO) return fd;
  Fd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return moved.valid() ? std::move(moved) : std::move(fd);
}

}  // namespace isopool::base
