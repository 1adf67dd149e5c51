// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace isopool::ipc {

/// The alignment of an input's first byte in its segment: the strictest alignment of an element
/// type. Results begin at the start of a block.
inline constexpr size_t kLentAlignment = 16;

}  // namespace isopool::ipc
