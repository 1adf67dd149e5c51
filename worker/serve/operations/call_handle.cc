// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void callHandle(RunningCall& call, ClientLink& channel) {
  const base::HandleId made = call.newHandle(1);
  PyRef result = call.callPython(channel, call.handle(channel, 0), 2);
  call.dropInputs();
  channel.handles.set(made, std::move(result));
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
