// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace isopool::python {

/// Adds PoolStatistics and what it consists of to the extension module.
void defineStatistics(pybind11::module_& module);

}  // namespace isopool::python
