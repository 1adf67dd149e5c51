// SPDX-License-Identifier: BSD-3-Clause
// isopool._native: the C++ client for Python. isopool/__init__.py imports torch before it.
#include <pybind11/pybind11.h>

#include "python/native/errors.h"
#include "python/native/model.h"
#include "python/native/objects.h"
#include "python/native/pool.h"
#include "python/native/pool_options.h"

PYBIND11_MODULE(_native, module) {
  isopool::python::translateErrors();
  isopool::python::defineObjects(module);
  isopool::python::definePoolOptions(module);
  isopool::python::defineModel(module);
  isopool::python::definePool(module);
  module.attr("version") = ISOPOOL_VERSION;
  module.attr("torch_version") = ISOPOOL_TORCH_VERSION;
}
