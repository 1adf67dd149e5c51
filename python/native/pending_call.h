// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <functional>

#include "isopool/isopool.h"

namespace isopool::python {

/// The callback of an asynchronous call: calls `callback(value, error)`, one of which is None, with
/// the GIL, on the thread that settles the call. What it raises goes to sys.unraisablehook. Once
/// the interpreter is ending, does nothing. The caller holds the GIL.
std::function<void(const Outcome&)> outcomeTo(pybind11::function callback);

/// The Python exception for a C++ one, as a call that throws it raises it. Needs the GIL.
pybind11::object exceptionOf(const std::exception_ptr& error);

/// Adds the class PendingCall to the extension module.
void definePendingCall(pybind11::module_& module);

}  // namespace isopool::python
