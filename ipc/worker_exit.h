// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Exit codes of a worker that says why it ended in the last line of its crash log.
namespace isopool::ipc {

/// It can't do what the supervisor told it.
inline constexpr int kGivenUpWorkerExit = 70;
/// What user code left in it would make other programs' calls fail.
inline constexpr int kUnfitWorkerExit = 71;

}  // namespace isopool::ipc
