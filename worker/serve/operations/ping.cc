// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void ping(RunningCall& call, ClientLink& channel) { call.answerNothing(channel); }

}  // namespace isopool::worker::operations
