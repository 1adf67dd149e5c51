// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Exit codes of a worker. With the first two it has written the reason for its exit into the last
/// line of its crash log.
namespace isopool::ipc {

/// The worker can't do what a message of the supervisor requires.
inline constexpr int kGivenUpWorkerExit = 70;
/// User code has left the worker in a state in which calls of other programs would fail.
inline constexpr int kUnfitWorkerExit = 71;
/// User code has asked for it (_isopool.leave_after_call()), as the Python Executor does when a
/// worker has served the tasks that max_tasks_per_child allows. Its last call has its answer.
inline constexpr int kServedWorkerExit = 86;

}  // namespace isopool::ipc
