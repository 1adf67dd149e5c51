// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/core/ivalue.h>

#include "worker/python/interpreter.h"
#include "worker/python/output_streams.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void findModules(RunningCall& call, ClientLink& channel) {
  PyRef names = PyRef::steal(PyList_New(0));
  for (size_t i = 0; i < call.reader().elements(); ++i) {
    PyList_Append(names.get(), call.text(i).get());
  }
  const PyRef find = orRaised(workerFunction("modules", "find_missing"));
  const PyRef missing = orRaised(PyRef::steal(PyObject_CallOneArg(find.get(), names.get())));
  // Not inferred: an empty list is the good answer here.
  c10::List<std::string> answer;
  for (Py_ssize_t i = 0; i < PyList_Size(missing.get()); ++i) {
    const char* name = PyUnicode_AsUTF8(PyList_GetItem(missing.get(), i));
    if (name == nullptr) throw PythonRaised{};
    answer.push_back(name);
  }
  flushOutput();
  call.answerValue(channel, answer);
}

}  // namespace isopool::worker::operations
