// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/spin.h"

#include <sched.h>

namespace isopool::ipc {

uint32_t currentProcessor() noexcept {
  const int processor = ::sched_getcpu();
  return processor < 0 ? 0 : static_cast<uint32_t>(processor);
}

}  // namespace isopool::ipc
