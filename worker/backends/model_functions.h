// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Python.h>

#include "ipc/channel/operation.h"
#include "worker/memory/package_store.h"
#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Adds what isopool_worker.models needs to _isopool. False with a Python error set.
bool addModelFunctions(PyObject* module);

/// The model that a file holds, as torch's own loader gives it; null with a Python error set.
/// `operators` is a Python string. With the GIL.
PyRef loadStoredModel(const Package& file, ipc::ModelKind kind, PyObject* operators);

}  // namespace isopool::worker
