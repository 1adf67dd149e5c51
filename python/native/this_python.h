// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/options.h"

namespace isopool::python {

/// The options with this program's interpreter if they name none: workers have its modules. Those
/// of a shared supervisor have the service's. With the GIL.
PoolOptions withThisPython(PoolOptions options);

}  // namespace isopool::python
