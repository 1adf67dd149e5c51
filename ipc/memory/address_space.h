// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace isopool::ipc {

/// How many bytes of address space an arena should reserve: `wanted`. If the address space of the
/// process is limited (RLIMIT_AS, `ulimit -v`), at most a quarter of what the process may still
/// map, in whole pages; perhaps 0. A moment's value: another thread may map memory meanwhile.
size_t reservableBytes(size_t wanted) noexcept;

}  // namespace isopool::ipc
