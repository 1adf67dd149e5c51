// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "worker/serve/running_call.h"

namespace isopool::worker {

/// Runs the operation of the call, which publishes the answer as its last step. Throws
/// PythonRaised, Refusal, ipc::ValueError, c10::Error or other standard exceptions. The call loop's
/// thread, with the GIL.
void perform(RunningCall& call, ClientLink& channel);

// For perform().
void pickle(RunningCall& call, ClientLink& channel);
void fillMovable(RunningCall& call, ClientLink& channel);
void defineMovable(RunningCall& call, ClientLink& channel);

}  // namespace isopool::worker
