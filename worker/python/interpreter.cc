// SPDX-License-Identifier: BSD-3-Clause
#include "worker/python/interpreter.h"

#include <stdexcept>
#include <string>

#include "worker/python/embedded_modules.h"
#include "worker/python/python_errors.h"

namespace isopool::worker {

namespace {

void check(PyStatus status, PyConfig& config) {
  if (PyStatus_Exception(status) == 0) return;
  std::string text = "Python could not be started";
  if (status.err_msg != nullptr) text.append(": ").append(status.err_msg);
  PyConfig_Clear(&config);
  throw std::runtime_error(text);
}

void initialize(const char* executable, UserPackages users) {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.parse_argv = 0;
  if (users == UserPackages::kNot) config.user_site_directory = 0;
  check(PyConfig_SetBytesString(&config, &config.executable, executable), config);
  check(PyConfig_SetBytesString(&config, &config.program_name, executable), config);
  check(Py_InitializeFromConfig(&config), config);
  PyConfig_Clear(&config);
}

// In a Python that has started the table of built-in modules is closed.
bool addModule(BuiltInModule module) {
  const PyRef object = PyRef::steal(module.make());
  return object && PyDict_SetItemString(PyImport_GetModuleDict(), module.name, object.get()) == 0;
}

// Imports isopool_worker/__init__.py, which makes the import system find the other modules.
bool importPackage() {
  const char* text = nullptr;
  for (const EmbeddedModule& module : embeddedModules()) {
    if (std::string_view(module.name) == "__init__") text = module.text;
  }
  const PyRef code =
      PyRef::steal(Py_CompileString(text, "<isopool>/isopool_worker/__init__.py", Py_file_input));
  if (!code) return false;
  return static_cast<bool>(PyRef::steal(PyImport_ExecCodeModule("isopool_worker", code.get())));
}

}  // namespace

void startInterpreter(const char* executable, UserPackages users, BuiltInModule module) {
  if (Py_IsInitialized() != 0) {
    if (!addModule(module)) throw std::runtime_error(takePythonError().traceback);
  } else {
    PyImport_AppendInittab(module.name, module.make);
    initialize(executable, users);
  }
  if (!importPackage()) throw std::runtime_error(takePythonError().traceback);
}

PyRef workerFunction(const char* module, const char* name) {
  const std::string fullName = std::string("isopool_worker.") + module;
  const PyRef found = PyRef::steal(PyImport_ImportModule(fullName.c_str()));
  if (!found) return {};
  return PyRef::steal(PyObject_GetAttrString(found.get(), name));
}

}  // namespace isopool::worker
