// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void extendPath(RunningCall& call, ClientLink& channel) {
  PyObject* path = PySys_GetObject("path");
  if (path == nullptr || !PyList_Check(path)) badRequest("sys.path is not a list");
  for (size_t i = 0; i < call.reader().elements(); ++i) {
    const PyRef folder = call.text(i);
    call.sandbox().noteModuleFolder(std::string(call.reader().text(i)));
    const int known = PySequence_Contains(path, folder.get());
    if (known < 0 || (known == 0 && PyList_Append(path, folder.get()) != 0)) throw PythonRaised{};
  }
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
