// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace isopool::python {

/// Adds the classes PoolOptions and Recycling to the extension module: the structures of
/// isopool/options.h, whose fields have their Python names. A time is set as timeOf() takes it and
/// read in seconds; the level of the sandbox is its name.
void definePoolOptions(pybind11::module_& module);

}  // namespace isopool::python
