// SPDX-License-Identifier: BSD-3-Clause
#include <string_view>

#include "worker/python/interpreter.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void registerModule(RunningCall& call, ClientLink& channel) {
  const std::string_view name = call.reader().text(0);
  const std::string_view source = call.reader().text(1);
  const PyRef registrar = orRaised(workerFunction("modules", "register"));
  // Whatever its bytes are: the text is judged when it is imported, where the error is understood.
  const PyRef moduleName = orRaised(PyRef::steal(
      PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "replace")));
  const PyRef text = orRaised(PyRef::steal(
      PyBytes_FromStringAndSize(source.data(), static_cast<Py_ssize_t>(source.size()))));
  orRaised(PyRef::steal(
      PyObject_CallFunctionObjArgs(registrar.get(), moduleName.get(), text.get(), nullptr)));
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
