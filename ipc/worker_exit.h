// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Exit codes of a worker. With the first two it has written the reason for its exit into the last
/// line of its crash log.
namespace isopool::ipc {

/// The worker can't do what a message of the supervisor requires.
inline constexpr int kGivenUpWorkerExit = 70;
/// User code has left the worker in a state in which calls of other programs would fail.
inline constexpr int kUnfitWorkerExit = 71;
/// It has served as many tasks as the Python Executor's max_tasks_per_child allows; isopool's
/// worker/tasks.py exits with it. The call that it had has not run.
inline constexpr int kServedWorkerExit = 86;

}  // namespace isopool::ipc
