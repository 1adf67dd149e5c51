// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace isopool::ipc {

/// What an input may begin at in its segment: the strictest alignment of an element type. Results
/// begin where blocks do.
inline constexpr size_t kLentAlignment = 16;

}  // namespace isopool::ipc
