// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Python.h>

#include "worker/memory/package_store.h"
#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Adds what the backends need of C++ to _isopool. False with a Python error set. With the GIL.
bool addModelFunctions(PyObject* module);

/// What the backend for `format` makes of a file; null with a Python error set, for an unknown
/// format, too. `format` and `options` are Python strings, which the client has sent: only the
/// backend checks the options. The file keeps a torch.package importer that was made, for further
/// objects of the same file. Runs user code (a pickle). With the GIL.
PyRef loadModel(Package& file, PyObject* format, PyObject* options);

}  // namespace isopool::worker
