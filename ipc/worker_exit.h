// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Exit codes of a worker that has written the reason for its exit into the last line of its
/// crash log.
namespace isopool::ipc {

/// The worker can't do what a message of the supervisor requires.
inline constexpr int kGivenUpWorkerExit = 70;
/// User code has left the worker in a state in which calls of other programs would fail.
inline constexpr int kUnfitWorkerExit = 71;

}  // namespace isopool::ipc
