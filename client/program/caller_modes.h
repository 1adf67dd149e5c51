// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool::client {

/// The calling thread's torch modes as ipc::SubmissionFlags: grad mode, inference mode, autocast on
/// the CPU with its type and cache, denormal numbers. A worker runs the call under the same modes.
/// For a call that another thread makes, take them on the thread that requests it.
uint32_t callerModes();

}  // namespace isopool::client
