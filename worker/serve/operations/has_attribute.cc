// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/caller_modes.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void hasAttribute(RunningCall& call, ClientLink& channel) {
  const bool ofObject =
      static_cast<ipc::Operation>(call.received().operation) == ipc::Operation::kObjectHasAttribute;
  PyObject* owner = ofObject ? call.object(channel, 0) : call.handle(channel, 0);
  const PyRef name = call.text(1);
  const CallerModes modes(call.received().flags);
  // Every exception of the attribute means "no", as it did in torch::deploy.
  const PyRef value = PyRef::steal(PyObject_GetAttr(owner, name.get()));
  PyErr_Clear();
  call.answerTruth(channel, static_cast<bool>(value));
}

}  // namespace isopool::worker::operations
