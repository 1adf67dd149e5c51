// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Python.h>

#include <cstdint>

#include "worker/memory/package_store.h"
#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Adds what the backends need of C++ to _isopool. False with a Python error set. With the GIL.
bool addModelFunctions(PyObject* module);

/// Where the tensors of a loaded object lie.
enum class MemoryOfModel : uint8_t {
  kOfFile,  ///< in the file's mapping, as those of all other objects of the file in this worker
  kOwn      ///< in a further mapping: objects of the same file do not see what is written there
};

/// What the backend for `format` makes of a file; null with a Python error set, for an unknown
/// format, too. `format` and `options` are Python strings, which the client has sent: only the
/// backend checks the options. The file keeps a torch.package importer that was made, for further
/// objects of the same file. Runs user code (a pickle). Throws SystemCallError. With the GIL.
PyRef loadModel(Package& file, PyObject* format, PyObject* options, MemoryOfModel memory);

}  // namespace isopool::worker
