// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace isopool::supervisor {

/// The supervisor's number of a client connection. Starts at 1; a number is never used again.
using ClientId = base::Id<struct ClientIdTag, uint64_t>;

}  // namespace isopool::supervisor
