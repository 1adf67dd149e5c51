// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace chaos {

/// Installs a handler of SIGUSR1 without SA_RESTART: the signal ends a thread's current system call
/// with EINTR. The handler also shows the nemesis that this program has begun and can be attacked.
void handleInterruptions();

/// How often the handler has run, in all threads together.
uint64_t interruptions();

}  // namespace chaos
