// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace isopool::supervisor {

/// The supervisor's number of a connected client, from 1, never reused.
using ClientId = base::Id<struct ClientIdTag, uint64_t>;

}  // namespace isopool::supervisor
