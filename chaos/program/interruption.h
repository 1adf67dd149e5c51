// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace chaos {

/// Handles SIGUSR1, without SA_RESTART: it ends whatever system call a thread is in with EINTR.
/// That it is handled tells the nemesis that this program has begun, and is fair game.
void handleInterruptions();

/// How often the handler has run, in all threads together.
uint64_t interruptions();

}  // namespace chaos
