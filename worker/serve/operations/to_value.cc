// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void toValue(RunningCall& call, ClientLink& channel) {
  call.answerResult(channel, PyRef::share(call.handle(channel, 0)));
}

}  // namespace isopool::worker::operations
