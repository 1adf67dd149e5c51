// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void callObject(RunningCall& call, ClientLink& channel) {
  PyRef result = call.callPython(channel, call.object(channel, 0), 1);
  call.answerResult(channel, std::move(result));
}

}  // namespace isopool::worker::operations
