// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace isopool::worker {

/// What a filter of system calls must know.
struct FilterOptions {
  pid_t process = 0;     ///< whose group has the same number
  bool network = false;  ///< internet sockets are allowed
  /// What brings this in the last two arguments, which the kernel does not look at, is a call of
  /// ours: prlimit() may change a limit, which is how this process raises its own, and a thread's
  /// priority and processors may be set by its number.
  uint64_t key[2] = {};
};

using FilterProgram = std::vector<sock_filter>;

/// What a worker may do at no time. A call that is forbidden is not made: SIGSYS is delivered to
/// the thread that tried (countForbiddenCalls() handles it). Some are refused without, because they
/// are made where signals are blocked or SIGSYS would kill: clone3 (ENOSYS, so that libc takes
/// clone) and handlers of SIGSYS (EPERM).
FilterProgram alwaysForbidden(const FilterOptions& options);

/// What it may not do besides, once calls run: start processes and programs. libc forks with
/// signals blocked, so a fork is refused (EPERM) without a signal.
FilterProgram forbiddenDuringCalls();

/// Binds all threads of this process, which must have no_new_privs, and what they start, for ever.
/// Throws SystemCallError, or std::runtime_error if a thread has made itself a filter of its own.
void installFilter(const FilterProgram& program);

/// Which argument of this system call names a thread, if it is one that is allowed for all threads
/// of this process and no others: filters do not know their numbers. Async-signal-safe.
std::optional<size_t> threadArgument(int number);

/// True for the name of one that changes what a file is, whatever its contents.
bool changesFiles(const std::string& callName);

/// "ptrace" for its number, if it is one that a filter here forbids.
std::optional<std::string> forbiddenCallName(size_t number);

}  // namespace isopool::worker
