// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::python {

/// From now on, what this module's functions throw of isopool/errors.h arrives in Python as the
/// class of the same name in isopool.errors, with the same facts as attributes.
void translateErrors();

}  // namespace isopool::python
