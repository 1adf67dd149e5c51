// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// First, as Python asks for: it decides what the system's headers declare.
#include <Python.h>

/// All that differs between versions of Python, for the parts that embed an interpreter or extend
/// one. cmake/EmbeddedPython.cmake names the newest version that was tried, and warns of a newer
/// one. The caller holds the GIL.
namespace isopool::base {

static_assert(PY_VERSION_HEX >= 0x030B0000, "isopool needs Python 3.11 or newer");
#if defined(Py_GIL_DISABLED)
#error "isopool does not support a free-threaded Python: docs/support.md says why"
#endif

/// Clears the exception that is being raised and returns it with its traceback, a new reference;
/// null if there is none.
inline PyObject* takeRaisedException() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == nullptr) return nullptr;
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr && value != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
#endif
}

/// True while the interpreter ends. Needs no GIL.
inline bool isInterpreterFinalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace isopool::base
