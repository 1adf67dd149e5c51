// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/interpreter_check.h"

#include <new>

namespace isopool::worker {

namespace {

PyRef newList() {
  PyRef list = PyRef::steal(::PyList_New(0));
  if (!list) throw std::bad_alloc();
  return list;
}

void append(const PyRef& list, PyObject* name) {
  if (::PyList_Append(list.get(), name) != 0) throw std::bad_alloc();
}

// Without a call of user code: all keys are strings.
PyObject* valueOf(PyObject* dict, PyObject* name) {
  PyObject* const value = ::PyDict_GetItemWithError(dict, name);
  if (value == nullptr) ::PyErr_Clear();
  return value;
}

std::string textOf(PyObject* name) {
  const char* const text = ::PyUnicode_AsUTF8(name);
  if (text == nullptr) ::PyErr_Clear();
  return text == nullptr ? "" : text;
}

template <typename IsThere>
std::string firstMissing(const PyRef& names, IsThere&& isThere) {
  const Py_ssize_t count = ::PyList_GET_SIZE(names.get());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const name = PyList_GET_ITEM(names.get(), i);
    if (!isThere(name)) return textOf(name);
  }
  return {};
}

}  // namespace

InterpreterCheck::InterpreterCheck()
    : builtins_(PyRef::share(::PyEval_GetBuiltins())),
      builtinNames_(::PyDict_Size(builtins_.get())),
      callables_(newList()),
      names_(newList()),
      modules_(newList()) {
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t at = 0; ::PyDict_Next(builtins_.get(), &at, &name, &value) != 0;) {
    append(::PyCallable_Check(value) != 0 ? callables_ : names_, name);
  }
  for (Py_ssize_t at = 0; ::PyDict_Next(::PyImport_GetModuleDict(), &at, &name, &value) != 0;) {
    const bool topLevel = PyUnicode_CheckExact(name) && textOf(name).find('.') == std::string::npos;
    if (topLevel && value != Py_None) append(modules_, name);
  }
}

std::string InterpreterCheck::failure() const {
  PyObject* const builtins = builtins_.get();
  std::string name = firstMissing(callables_, [&](PyObject* each) {
    PyObject* const value = valueOf(builtins, each);
    return value != nullptr && ::PyCallable_Check(value) != 0;
  });
  if (name.empty()) {
    name = firstMissing(names_, [&](PyObject* each) { return valueOf(builtins, each) != nullptr; });
  }
  if (!name.empty()) return "user code removed or spoiled Python's built-in " + name;
  PyObject* const modules = ::PyImport_GetModuleDict();
  name = firstMissing(modules_, [&](PyObject* each) {
    PyObject* const value = valueOf(modules, each);
    return value != nullptr && value != Py_None;
  });
  return name.empty() ? "" : "user code removed the module " + name + " from sys.modules";
}

}  // namespace isopool::worker
