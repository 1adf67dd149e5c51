// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/thread_locals.h"

#include <cstddef>

#include "worker/python/interpreter.h"

namespace isopool::worker {

namespace {

std::vector<PyRef> findDicts() {
  std::vector<PyRef> dicts;
  const PyRef find = workerFunction("thread_locals", "dicts");
  const PyRef list = find ? PyRef::steal(::PyObject_CallNoArgs(find.get())) : PyRef();
  for (Py_ssize_t i = 0; list && i < ::PyList_Size(list.get()); ++i) {
    dicts.push_back(PyRef::share(PyList_GET_ITEM(list.get(), i)));
  }
  ::PyErr_Clear();
  return dicts;
}

// An object has the same dict in a thread for all its life.
const std::vector<PyRef>& dictsOfThisThread() {
  static const auto* const dicts = new std::vector<PyRef>(findDicts());
  return *dicts;
}

// The same objects under the same names. Runs no Python code: all names are strings.
bool isSame(PyObject* dict, PyObject* as) {
  const Py_ssize_t size = as == nullptr ? 0 : PyDict_GET_SIZE(as);
  if (PyDict_GET_SIZE(dict) != size) return false;
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t at = 0; size != 0 && ::PyDict_Next(as, &at, &name, &value) != 0;) {
    if (::PyDict_GetItemWithError(dict, name) != value) return false;
  }
  return true;
}

}  // namespace

ThreadLocals ThreadLocals::ofThisThread() {
  ThreadLocals locals;
  for (const PyRef& dict : dictsOfThisThread()) {
    const bool empty = PyDict_GET_SIZE(dict.get()) == 0;
    locals.attributes_.push_back(empty ? PyRef() : PyRef::steal(::PyDict_Copy(dict.get())));
  }
  ::PyErr_Clear();
  return locals;
}

void ThreadLocals::apply() const {
  for (size_t i = 0; i < attributes_.size(); ++i) {
    PyObject* const dict = dictsOfThisThread()[i].get();
    PyObject* const wanted = attributes_[i].get();
    if (isSame(dict, wanted)) continue;
    const PyRef former = PyRef::steal(::PyDict_Copy(dict));  // whose ends may run code
    ::PyDict_Clear(dict);
    if (wanted != nullptr) ::PyDict_Update(dict, wanted);
  }
  ::PyErr_Clear();
}

}  // namespace isopool::worker
