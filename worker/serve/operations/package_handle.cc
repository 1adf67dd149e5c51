// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void packageHandle(RunningCall& call, ClientLink& channel) {
  PyObject* importer = call.package(channel, 0).importer();
  if (importer == nullptr) throw PythonRaised{};
  channel.handles.set(call.newHandle(1), PyRef::share(importer));
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
