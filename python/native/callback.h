// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

namespace isopool::python {

/// A callable of the program that threads of the library own and call: its last owner may be a
/// thread without the GIL.
using Callback = std::shared_ptr<pybind11::function>;

/// The caller holds the GIL.
Callback makeCallback(pybind11::function function);

}  // namespace isopool::python
