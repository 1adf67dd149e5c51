// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool::client {

/// The modes of the calling thread that are in force in a worker while it runs a call: grad mode,
/// inference mode, autocast on the CPU. As ipc::SubmissionFlags.
uint32_t callerModes();

}  // namespace isopool::client
