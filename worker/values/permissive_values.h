// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <Python.h>

namespace isopool::worker {

/// Converts an object as fromPython() does, and also most objects that fromPython() refuses;
/// docs/values.md has the table. If elements have no common type, the element type of their
/// container is Any. With the GIL held; may run user code. Throws ipc::ValueError with the path
/// of the element.
at::IValue fromPythonPermissive(PyObject* object);

}  // namespace isopool::worker
