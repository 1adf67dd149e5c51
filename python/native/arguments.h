// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>

#include <cstddef>

namespace isopool::python {

/// A Python object as a value for a call. Infers its type by the rules of TorchScript's tracer, and
/// detaches its tensors. Throws Error if no value can hold it; the text begins with the object's
/// place: the argument's position (index) or, if it has one, name, and the path in it, as in
/// args[0]['past'][3]. Runs no code of the object. Needs the GIL.
at::IValue argumentValue(pybind11::handle object, size_t index, pybind11::handle name = {});

}  // namespace isopool::python
