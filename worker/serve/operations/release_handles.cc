// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void releaseHandles(RunningCall& call, ClientLink& channel) {
  bool mayBeLast = false;
  for (size_t i = 0; i < call.reader().elements(); ++i) {
    const base::HandleId id(call.reader().integer(i));
    mayBeLast = mayBeLast || !(channel.newestOfDropped < id);
    channel.handles.forget(id);
  }
  if (mayBeLast) call.control().requestCollection();
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
