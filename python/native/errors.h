// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>

namespace isopool::python {

/// From now on exceptions of isopool/errors.h that this module's functions throw become Python
/// exceptions: the class of the same name in isopool.errors, with the same facts as attributes. A
/// c10::Error becomes a RuntimeError.
void translateErrors();

/// Sets that Python exception as the raised one. Throws `error` itself if it is none of these.
/// Needs the GIL.
void raiseOf(const std::exception_ptr& error);

}  // namespace isopool::python
