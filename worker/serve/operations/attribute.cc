// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void attribute(RunningCall& call, ClientLink& channel) {
  PyObject* owner = call.handle(channel, 0);
  const PyRef name = call.text(1);
  channel.handles.set(call.newHandle(2), call.attributeOf(channel, owner, name.get()));
  if (const auto object = channel.handles.ownerOf(call.newHandle(0))) {
    channel.handles.setOwner(call.newHandle(2), *object);
  }
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
