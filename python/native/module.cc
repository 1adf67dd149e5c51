// SPDX-License-Identifier: BSD-3-Clause
// isopool._native: the C++ client for Python. isopool/__init__.py imports torch before it.
#include <pybind11/pybind11.h>

#include "python/native/errors.h"
#include "python/native/objects.h"

PYBIND11_MODULE(_native, module) {
  isopool::python::translateErrors();
  isopool::python::defineObjects(module);
  module.attr("version") = ISOPOOL_VERSION;
  module.attr("torch_version") = ISOPOOL_TORCH_VERSION;
}
