// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/address_space.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/fd.h"
#include "base/without_cancellation.h"
#include "ipc/memory/memory_object.h"

namespace isopool::ipc {

namespace {

// The first number of /proc/self/statm counts pages.
size_t mappedBytes() noexcept {
  const base::WithoutCancellation complete;
  const base::Fd file(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[64] = {};
  if (!file.valid() || ::read(file.get(), text, sizeof text - 1) <= 0) return 0;
  return std::strtoull(text, nullptr, 10) * kPageBytes;
}

}  // namespace

size_t reservableBytes(size_t wanted) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const size_t mapped = mappedBytes();
  const size_t left = limit.rlim_cur > mapped ? limit.rlim_cur - mapped : 0;
  return std::min(wanted, left / 4 / kPageBytes * kPageBytes);
}

}  // namespace isopool::ipc
