// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace isopool::python {

/// The argument of a call at a position (index) or of a name, by argumentValue(). Needs the GIL.
at::IValue toValue(pybind11::handle object, size_t index);
std::pair<std::string, at::IValue> toNamedValue(pybind11::handle name, pybind11::handle object);

/// The arguments of a call.
std::vector<at::IValue> toValues(const pybind11::tuple& args);
std::unordered_map<std::string, c10::IValue> toNamedValues(const pybind11::dict& kwargs);

/// The bytes of an object that has them in one piece (bytes, memoryview, PickleBuffer) as a uint8
/// tensor that keeps the object; no copy. Raises BufferError. Needs the GIL.
pybind11::object tensorOf(const pybind11::object& buffer);

/// A text of a worker or of the library. It is normally UTF-8; a crash log may hold any bytes.
/// Needs the GIL.
pybind11::str toText(std::string_view bytes);

/// The result of a call as a Python object. Throws Error if it has a string that is not UTF-8, as
/// a model's `bytes` become. Needs the GIL.
pybind11::object toObject(at::IValue value);

}  // namespace isopool::python
