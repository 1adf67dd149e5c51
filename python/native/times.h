// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>

namespace isopool::python {

/// A time that a user states: seconds as a number, or a timedelta. One that is too long for
/// nanoseconds is the longest that they hold. Throws pybind11::type_error for another object, and
/// pybind11::value_error for NaN; `what` is the name that the text of the error begins with.
std::chrono::nanoseconds timeOf(pybind11::handle object, const char* what);

}  // namespace isopool::python
