// SPDX-License-Identifier: BSD-3-Clause
#include "worker/python/python_errors.h"

#include "base/python_version.h"
#include "worker/python/interpreter.h"
#include "worker/python/py_ref.h"

namespace isopool::worker {

namespace {

std::string bytesOf(PyObject* bytes) {
  if (bytes == nullptr || !PyBytes_Check(bytes)) return {};
  return {PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))};
}

// Sets the fields that Sandbox::explain() uses.
void describeDenial(PyObject* raised, PythonError& error) {
  const PyRef denial = workerFunction("errors", "denial");
  const PyRef both = denial ? PyRef::steal(PyObject_CallOneArg(denial.get(), raised)) : PyRef();
  if (!both || !PyTuple_Check(both.get()) || PyTuple_GET_SIZE(both.get()) != 2) {
    PyErr_Clear();
    return;
  }
  error.memoryShort = PyTuple_GET_ITEM(both.get(), 0) == Py_True;
  PyObject* files = PyTuple_GET_ITEM(both.get(), 1);
  if (!PyList_Check(files)) return;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(files); ++i) {
    error.refusedFiles.push_back(bytesOf(PyList_GET_ITEM(files, i)));
  }
}

}  // namespace

PythonError takePythonError(bool withPickle) {
  PythonError error;
  const PyRef raised = PyRef::steal(base::takeRaisedException());
  if (!raised) {
    error.type = "SystemError";
    error.message = "Python reported an error without an exception";
    error.formatted = error.type + ": " + error.message;
    return error;
  }
  error.exitAsked = PyErr_GivenExceptionMatches(raised.get(), PyExc_SystemExit) != 0;
  const PyRef describe = workerFunction("errors", "describe");
  const PyRef words =
      describe ? PyRef::steal(PyObject_CallFunctionObjArgs(
                     describe.get(), raised.get(), withPickle ? Py_True : Py_False, nullptr))
               : PyRef();
  if (words && PyTuple_Check(words.get()) && PyTuple_GET_SIZE(words.get()) == 5) {
    error.type = bytesOf(PyTuple_GET_ITEM(words.get(), 0));
    error.message = bytesOf(PyTuple_GET_ITEM(words.get(), 1));
    error.traceback = bytesOf(PyTuple_GET_ITEM(words.get(), 2));
    error.formatted = bytesOf(PyTuple_GET_ITEM(words.get(), 3));
    error.pickled = bytesOf(PyTuple_GET_ITEM(words.get(), 4));
  } else {
    PyErr_Clear();
    error.type = Py_TYPE(raised.get())->tp_name;
    error.message = "(an exception that could not be described)";
    error.formatted = error.type + ": " + error.message;
  }
  describeDenial(raised.get(), error);
  return error;
}

int takeExitCode() {
  const PyRef raised = PyRef::steal(base::takeRaisedException());
  const PyRef find = workerFunction("errors", "exit_code");
  const PyRef code = find ? PyRef::steal(PyObject_CallOneArg(find.get(), raised.get())) : PyRef();
  const long number = code ? PyLong_AsLong(code.get()) : 1;
  PyErr_Clear();
  return static_cast<int>(number);
}

void PythonError::append(const std::string& lines) {
  for (std::string* text : {&message, &traceback, &formatted}) {
    if (!text->empty() && text->back() != '\n') text->push_back('\n');
    text->append(lines);
  }
}

void PythonError::explainMissingModule() {
  if (type != "ModuleNotFoundError") return;
  // What torch's PackageImporter says: it imports only the modules that the package names.
  if (message.find("in self-contained archive") != std::string::npos) {
    return append(
        "isopool: the package neither has this module nor declares it: call "
        "PackageExporter.extern() for it when the package is made, or intern()");
  }
  PyObject* executable = PySys_GetObject("executable");  // borrowed
  const char* name = executable != nullptr && PyUnicode_Check(executable) != 0
                         ? PyUnicode_AsUTF8(executable)
                         : nullptr;
  if (name == nullptr) PyErr_Clear();
  append("isopool: neither the package nor the workers' Python" +
         (name != nullptr ? ", " + std::string(name) + "," : std::string()) +
         " has this module (docs/adding-libraries.md)");
}

}  // namespace isopool::worker
