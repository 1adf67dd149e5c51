// SPDX-License-Identifier: BSD-3-Clause
// The worker as an extension module, which the launcher loads into the user's own interpreter.
#include <sys/prctl.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "worker/program.h"
#include "worker/python/py_ref.h"

namespace isopool::worker {

namespace {

// Modules see what they would see in a program that embeds Python: no arguments, and nothing of the
// launcher's in __main__.
bool hideTheLauncher() {
  PyObject* main = PyImport_AddModule("__main__");
  PyObject* names = main != nullptr ? PyModule_GetDict(main) : nullptr;
  const PyRef all = PyRef::steal(names != nullptr ? PyDict_Keys(names) : nullptr);
  if (!all) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all.get()); ++i) {
    PyObject* name = PyList_GET_ITEM(all.get(), i);
    const char* text = PyUnicode_AsUTF8(name);
    if (text == nullptr) return false;
    if (text[0] != '_' && PyDict_DelItem(names, name) != 0) return false;
  }
  const PyRef arguments = PyRef::steal(Py_BuildValue("[s]", ""));
  return arguments && PySys_SetObject("argv", arguments.get()) == 0;
}

// run(arguments: list[str]): never returns.
PyObject* run(PyObject*, PyObject* list) {
  if (PyList_Check(list) == 0) {
    PyErr_SetString(PyExc_TypeError, "the arguments are no list");
    return nullptr;
  }
  std::vector<std::string> texts;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    const PyRef bytes = PyRef::steal(PyUnicode_EncodeFSDefault(PyList_GET_ITEM(list, i)));
    if (!bytes) return nullptr;
    texts.emplace_back(PyBytes_AS_STRING(bytes.get()));
  }
  if (!hideTheLauncher()) return nullptr;
  std::vector<char*> words;
  for (std::string& text : texts) words.push_back(text.data());
  words.push_back(nullptr);
  ::prctl(PR_SET_NAME, "isopool-worker", 0, 0, 0);
  const int status = runProgram(static_cast<int>(texts.size()), words.data());
  std::fflush(nullptr);
  std::_Exit(status);  // as in the program that embeds Python, which doesn't finalize it
}

PyMethodDef functions[] = {{"run", &run, METH_O, "The program isopool-worker; never returns."},
                           {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition{PyModuleDef_HEAD_INIT,
                       "isopool_worker_program",
                       nullptr,
                       -1,
                       functions,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

}  // namespace

}  // namespace isopool::worker

PyMODINIT_FUNC PyInit_isopool_worker_program() {
  return PyModule_Create(&isopool::worker::definition);
}
