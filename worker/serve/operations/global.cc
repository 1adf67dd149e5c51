// SPDX-License-Identifier: BSD-3-Clause
#include "worker/python/output_streams.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void global(RunningCall& call, ClientLink& channel) {
  const PyRef moduleName = call.text(0);
  const PyRef name = call.text(1);
  const PyRef module = orRaised(PyRef::steal(PyImport_Import(moduleName.get())));
  flushOutput();
  channel.handles.set(call.newHandle(2),
                      orRaised(PyRef::steal(PyObject_GetAttr(module.get(), name.get()))));
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
