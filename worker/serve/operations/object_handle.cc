// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void objectHandle(RunningCall& call, ClientLink& channel) {
  channel.handles.set(call.newHandle(1), PyRef::share(call.object(channel, 0)));
  channel.handles.setOwner(call.newHandle(1), base::ObjectId(call.reader().integer(0)));
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
