// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/this_python.h"

#include <pybind11/pybind11.h>

#include <string>

namespace isopool::python {

namespace py = pybind11;

// ISOPOOL_PYTHON_EXECUTABLE decides, as each setting in the environment does.
PoolOptions withThisPython(PoolOptions options) {
  if (!options.python.empty() || !options.sharedSupervisor.empty()) return options;
  const py::object executable = py::module_::import("sys").attr("executable");
  if (!executable.is_none()) {
    options.python = py::module_::import("os").attr("fsencode")(executable).cast<std::string>();
  }
  return options;
}

}  // namespace isopool::python
