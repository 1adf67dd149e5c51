// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Python.h>

#include "worker/memory/package_store.h"
#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Adds what the backends need of C++ to _isopool. False with a Python error set.
bool addModelFunctions(PyObject* module);

/// What the backend for `format` makes of a file; null with a Python error set. `format` and
/// `options` are Python strings. With the GIL.
PyRef loadModel(Package& file, PyObject* format, PyObject* options);

}  // namespace isopool::worker
