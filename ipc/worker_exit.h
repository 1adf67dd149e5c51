// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::ipc {

/// A worker's exit code when what user code left in it would make other programs' calls fail. The last
/// line of its last words says what.
inline constexpr int kUnfitWorkerExit = 71;

}  // namespace isopool::ipc
