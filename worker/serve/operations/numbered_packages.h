// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/ids.h"
#include "worker/python/py_ref.h"
#include "worker/serve/call_failures.h"

namespace isopool::worker::operations {

/// dict[number] = value, for the dicts of packages that worker/python/moving.py takes. Throws
/// PythonRaised. With the GIL.
inline void setNumbered(const PyRef& dict, base::PackageId number, const PyRef& value) {
  const PyRef key = orRaised(PyRef::steal(PyLong_FromUnsignedLong(number.value)));
  if (PyDict_SetItem(dict.get(), key.get(), value.get()) != 0) throw PythonRaised{};
}

}  // namespace isopool::worker::operations
