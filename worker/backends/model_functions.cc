// SPDX-License-Identifier: BSD-3-Clause
#include "worker/backends/model_functions.h"

#include <malloc.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <exception>
#include <vector>

#include "worker/backends/compiled_model.h"
#include "worker/backends/script_weights.h"
#include "worker/memory/package_capsule.h"
#include "worker/python/interpreter.h"

namespace isopool::worker {

namespace {

constexpr const char* kCompiledCapsule = "isopool.compiled_model";

// C++ errors of torch's as what they are in Python everywhere else.
template <typename Function>
PyObject* orPythonError(Function function) {
  try {
    return function();
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

bool readTensors(PyObject* list, std::vector<at::Tensor>& tensors) {
  const PyRef fast = PyRef::steal(PySequence_Fast(list, "a list of tensors is wanted"));
  if (!fast) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    PyObject* each = PySequence_Fast_GET_ITEM(fast.get(), i);
    if (!THPVariable_Check(each)) {
      PyErr_Format(PyExc_TypeError, "a tensor is wanted, not %s", Py_TYPE(each)->tp_name);
      return false;
    }
    tensors.push_back(THPVariable_Unpack(each));
  }
  return true;
}

PyObject* shareWeights(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  PyObject* weights = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &capsule, &weights) == 0) return nullptr;
  const auto mapping = packageMapping(capsule);
  if (!mapping) return nullptr;
  return orPythonError([&]() -> PyObject* {
    WeightSharing sharing(mapping);
    if (!shareScriptWeights(weights, sharing)) {
      std::vector<at::Tensor> tensors;
      if (!readTensors(weights, tensors)) return nullptr;
      for (const at::Tensor& each : tensors) {
        if (each.has_storage()) sharing.share(each.storage());
      }
    }
    // The copies were many pages side by side: back to the system with them.
    ::malloc_trim(0);
    Py_RETURN_NONE;
  });
}

PyObject* trimHeap(PyObject*, PyObject*) {
  ::malloc_trim(0);
  Py_RETURN_NONE;
}

void releaseCompiled(PyObject* capsule) {
  delete static_cast<CompiledModel*>(PyCapsule_GetPointer(capsule, kCompiledCapsule));
}

PyObject* openCompiled(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* path = nullptr;
  const char* operators = nullptr;
  if (PyArg_ParseTuple(arguments, "sOs", &path, &capsule, &operators) == 0) return nullptr;
  const auto mapping = packageMapping(capsule);
  if (!mapping) return nullptr;
  return orPythonError([&]() -> PyObject* {
    auto model = std::make_unique<CompiledModel>(path, mapping, operators);
    ::malloc_trim(0);
    PyObject* made = PyCapsule_New(model.get(), kCompiledCapsule, &releaseCompiled);
    if (made != nullptr) [[maybe_unused]]
      auto* taken = model.release();
    return made;
  });
}

PyObject* compiledCallSpec(PyObject*, PyObject* capsule) {
  auto* model = static_cast<CompiledModel*>(PyCapsule_GetPointer(capsule, kCompiledCapsule));
  if (model == nullptr) return nullptr;
  return orPythonError([&]() -> PyObject* {
    const std::vector<std::string> specs = model->get_call_spec();
    return Py_BuildValue("(ss)", specs.at(0).c_str(), specs.at(1).c_str());
  });
}

PyObject* runCompiled(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  PyObject* list = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &capsule, &list) == 0) return nullptr;
  auto* model = static_cast<CompiledModel*>(PyCapsule_GetPointer(capsule, kCompiledCapsule));
  std::vector<at::Tensor> inputs;
  if (model == nullptr || !readTensors(list, inputs)) return nullptr;
  return orPythonError([&]() -> PyObject* {
    std::vector<at::Tensor> outputs;
    {
      const pybind11::gil_scoped_release released;
      outputs = model->run(inputs);
    }
    PyRef results = PyRef::steal(PyList_New(static_cast<Py_ssize_t>(outputs.size())));
    if (!results) return nullptr;
    for (size_t i = 0; i < outputs.size(); ++i) {
      PyObject* output = THPVariable_Wrap(std::move(outputs[i]));
      if (output == nullptr) return nullptr;
      PyList_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), output);
    }
    return results.release();
  });
}

std::array<PyMethodDef, 6> functions = {{
    {"share_weights", &shareWeights, METH_VARARGS,
     "share_weights(package, weights): has weights, a ScriptModule or a list of tensors, lie in "
     "the "
     "package's private mapping where their bytes are found there."},
    {"trim_heap", &trimHeap, METH_NOARGS,
     "trim_heap(): gives the system what is free in the heap, which a loader has filled for a "
     "moment."},
    {"open_compiled", &openCompiled, METH_VARARGS,
     "open_compiled(path, package, operators): a model compiled by AOTInductor, from its library "
     "and the description of what it calls through torch's dispatcher."},
    {"compiled_call_spec", &compiledCallSpec, METH_O,
     "compiled_call_spec(model): how its arguments and results are nested, as torch writes it."},
    {"run_compiled", &runCompiled, METH_VARARGS,
     "run_compiled(model, tensors): its result tensors."},
    {nullptr, nullptr, 0, nullptr},
}};

}  // namespace

bool addModelFunctions(PyObject* module) {
  return PyModule_AddFunctions(module, functions.data()) == 0;
}

PyRef loadModel(Package& file, PyObject* format, PyObject* options, MemoryOfModel memory) {
  const PyRef load = workerFunction("model_backends", "load");
  const PyRef path = PyRef::steal(PyUnicode_FromString(file.path().c_str()));
  const PyRef name = PyRef::steal(PyUnicode_DecodeFSDefaultAndSize(
      file.name().data(), static_cast<Py_ssize_t>(file.name().size())));
  const PyRef capsule =
      memory == MemoryOfModel::kOwn && !file.shared() ? file.ownCapsule() : file.capsule();
  if (!load || !path || !name || !capsule) return {};
  PyObject* importer = file.usedImporter() != nullptr ? file.usedImporter() : Py_None;
  const PyRef loaded = PyRef::steal(PyObject_CallFunctionObjArgs(
      load.get(), format, options, path.get(), name.get(), capsule.get(), importer, nullptr));
  if (!loaded) return {};
  PyObject* object = nullptr;
  if (PyArg_ParseTuple(loaded.get(), "OO", &object, &importer) == 0) return {};
  if (importer != Py_None) file.keepImporter(PyRef::share(importer));
  return PyRef::share(object);
}

}  // namespace isopool::worker
