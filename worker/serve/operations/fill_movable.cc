// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void fillMovable(RunningCall& call, ClientLink& channel) {
  PyObject* move = call.handle(channel, 0);
  const PyRef memory = orRaised(call.package(channel, 1).capsule());
  orRaised(PyRef::steal(PyObject_CallMethod(move, "fill", "O", memory.get())));
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
