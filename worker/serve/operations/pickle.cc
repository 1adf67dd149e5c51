// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "worker/python/interpreter.h"
#include "worker/python/output_streams.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/operations/numbered_packages.h"
#include "worker/serve/running_call.h"
#include "worker/values/python_values.h"

namespace isopool::worker::operations {

void pickle(RunningCall& call, ClientLink& channel) {
  PyObject* moved = call.handle(channel, 0);
  const PyRef importers = orRaised(PyRef::steal(PyDict_New()));
  const PyRef ranges = orRaised(PyRef::steal(PyList_New(0)));
  for (const auto& package : channel.packages.all()) {
    const ipc::Mapping& mapping = *package->mapping();
    if (package->shared()) {
      const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
      const PyRef range = orRaised(PyRef::steal(
          Py_BuildValue("(IKK)", package->id().value, static_cast<unsigned long long>(begin),
                        static_cast<unsigned long long>(begin + mapping.bytes()))));
      if (PyList_Append(ranges.get(), range.get()) != 0) throw PythonRaised{};
    } else if (PyObject* importer = package->usedImporter()) {
      setNumbered(importers, package->id(), PyRef::share(importer));
    }
  }
  // Of an object that belongs to a model, the model's name.
  const std::string_view model = call.modelOf(channel, 0);
  const PyRef name = orRaised(PyRef::steal(
      PyUnicode_DecodeUTF8(model.data(), static_cast<Py_ssize_t>(model.size()), "replace")));
  const PyRef makeMove = orRaised(workerFunction("moving", "Move"));
  PyRef move = orRaised(PyRef::steal(PyObject_CallFunctionObjArgs(
      makeMove.get(), moved, importers.get(), ranges.get(), name.get(), nullptr)));
  const PyRef summary = orRaised(PyRef::steal(PyObject_CallMethod(move.get(), "summary", nullptr)));
  flushOutput();
  channel.handles.set(call.newHandle(1), std::move(move));
  call.answerValue(channel, fromPython(summary.get()));
}

}  // namespace isopool::worker::operations
