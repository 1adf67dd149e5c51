// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/spin.h"

#include <sched.h>

namespace isopool::ipc {

uint32_t currentProcessor() noexcept {
  const int processor = ::sched_getcpu();
  return processor < 0 ? 0 : static_cast<uint32_t>(processor);
}

void leaveProcessor() noexcept {
  cpu_set_t all;
  if (::sched_getaffinity(0, sizeof(all), &all) != 0) return;
  cpu_set_t others = all;
  CPU_CLR(currentProcessor(), &others);
  if (CPU_COUNT(&others) == 0) return;
  if (::sched_setaffinity(0, sizeof(others), &others) == 0) {
    ::sched_setaffinity(0, sizeof(all), &all);
  }
}

}  // namespace isopool::ipc
