// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <Python.h>

namespace isopool::worker {

/// What fromPython() makes of an object, and a value too of most that it refuses: docs/values.md
/// has the table. Where elements have no type in common the container's is Any. With the GIL held;
/// may run user code. Throws ipc::ValueError, which names the element by its path.
at::IValue fromPythonPermissive(PyObject* object);

}  // namespace isopool::worker
