// SPDX-License-Identifier: BSD-3-Clause
#include "bench/in_process_model.h"

#include <Python.h>
#include <torch/csrc/autograd/python_variable.h>

#include <stdexcept>
#include <utility>

namespace bench {

namespace {

[[noreturn]] void throwPythonError() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* text = value == nullptr ? nullptr : PyObject_Str(value);
  const char* words = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  throw std::runtime_error(std::string("in-process call: ") + (words ? words : "unknown error"));
}

PyObject* checked(PyObject* object) {
  if (object == nullptr) throwPythonError();
  return object;
}

void startInterpreter() {
  if (Py_IsInitialized() != 0) return;
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  PyConfig_SetBytesString(&config, &config.executable, ISOPOOL_BENCH_PYTHON);
  const PyStatus status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status) != 0) throw std::runtime_error("Python does not start");
  if (PyRun_SimpleString("import warnings\n"
                         "warnings.filterwarnings('ignore', 'TypedStorage is deprecated')\n"
                         "import torch, torch.package\n"
                         "torch.set_num_threads(1)\n") != 0) {
    throw std::runtime_error("torch can't be imported");
  }
}

}  // namespace

struct InProcessModel::Object {
  PyObject* callable = nullptr;
  PyObject* held = nullptr;
};

InProcessModel::InProcessModel(const std::string& package, const std::string& module,
                               const std::string& file)
    : object_(std::make_unique<Object>()) {
  startInterpreter();
  PyObject* packages = checked(PyImport_ImportModule("torch.package"));
  PyObject* importer =
      checked(PyObject_CallMethod(packages, "PackageImporter", "s", package.c_str()));
  object_->callable =
      checked(PyObject_CallMethod(importer, "load_pickle", "ss", module.c_str(), file.c_str()));
  Py_DECREF(importer);
  Py_DECREF(packages);
}

InProcessModel::~InProcessModel() {
  Py_XDECREF(object_->callable);
  Py_XDECREF(object_->held);
}

at::Tensor InProcessModel::operator()(const at::Tensor& argument) const {
  PyObject* wrapped = checked(THPVariable_Wrap(argument));
  PyObject* result = checked(PyObject_CallOneArg(object_->callable, wrapped));
  Py_DECREF(wrapped);
  at::Tensor tensor = THPVariable_Unpack(result);
  Py_DECREF(result);
  return tensor;
}

void InProcessModel::touchAttribute(const char* name) const {
  Py_DECREF(checked(PyObject_GetAttrString(object_->callable, name)));
}

void InProcessModel::hold(const at::Tensor& argument) {
  Py_XDECREF(std::exchange(object_->held, checked(THPVariable_Wrap(argument))));
}

void InProcessModel::callHeld() const {
  Py_DECREF(checked(PyObject_CallOneArg(object_->callable, object_->held)));
}

at::Tensor InProcessModel::unpackHeld() const { return THPVariable_Unpack(object_->held); }

GilReleased::GilReleased() : state_(PyEval_SaveThread()) {}
GilReleased::~GilReleased() { PyEval_RestoreThread(static_cast<PyThreadState*>(state_)); }

GilHeld::GilHeld() : state_(PyGILState_Ensure()) {}
GilHeld::~GilHeld() { PyGILState_Release(static_cast<PyGILState_STATE>(state_)); }

}  // namespace bench
