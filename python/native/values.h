// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace isopool::python {

/// A Python object as a value for a call: its type inferred as TorchScript's tracer does, its
/// tensors detached. Throws Error if it has none.
at::IValue toValue(pybind11::handle object);

/// What a call gave, as a Python object.
pybind11::object toObject(at::IValue value);

}  // namespace isopool::python
