// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "ipc/tensor/routing_allocator.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/caller_modes.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void attribute(RunningCall& call, ClientLink& channel) {
  PyObject* owner = call.handle(channel, 0);
  const PyRef name = call.text(1);
  PyRef value;
  {
    const CallerModes modes(call.received().flags);
    const ipc::ScopedBlockSource source(&channel.memory->output);
    value = PyRef::steal(PyObject_GetAttr(owner, name.get()));
  }
  channel.handles.set(call.newHandle(2), orRaised(std::move(value)));
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
