// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "worker/sandbox/filter_program.h"

namespace isopool::worker {

/// The verdict for ioctl(): the requests that Python, libc, torch and, with `gpus`, CUDA need are
/// allowed, and all others get the action `refused`. Most of the others change what all users of a
/// file, a terminal or a device share, and need no descriptor that is open for writing.
Verdict controls(bool gpus, uint32_t refused);

}  // namespace isopool::worker
