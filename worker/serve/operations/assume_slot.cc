// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

// Sets torch.version.interp to the client's slot, if Python code sees another one. Each client sees
// its own number.
void assumeSlot(RunningCall& call, ClientLink& channel) {
  channel.slot = call.reader().integer(0);
  if (channel.slot != call.shownSlot()) {
    const PyRef version = orRaised(PyRef::steal(PyImport_ImportModule("torch.version")));
    const PyRef slot = PyRef::steal(PyLong_FromUnsignedLongLong(*channel.slot));
    if (PyObject_SetAttrString(version.get(), "interp", slot.get()) != 0) throw PythonRaised{};
    call.shownSlot() = channel.slot;
  }
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
