// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "worker/sandbox/filter_program.h"

namespace isopool::worker {

/// The parameters of a system call filter (seccomp).
struct FilterOptions {
  pid_t process = 0;     ///< the worker; its process group has the same number
  bool network = false;  ///< internet sockets are allowed
  bool gpus = false;     ///< requests to the drivers of GPUs are allowed
  /// Secret random number. A system call with it in the last two arguments, which the kernel
  /// ignores, comes from the runtime and not from user code: prlimit() may then change a limit of
  /// this process, and a thread's priority and processors may be set by the thread's number.
  uint64_t key[2] = {};
};

/// The filter for the whole life of a worker. A forbidden system call is not made: the kernel
/// delivers SIGSYS to the thread that tried it (countForbiddenCalls() handles the signal). Some
/// calls fail without a signal, because their callers block signals or SIGSYS would kill them:
/// clone3 (ENOSYS, so that libc uses clone), handlers of SIGSYS (EPERM), and, until calls run,
/// calls that change attributes of files or take resources of the user or the machine (EPERM).
FilterProgram alwaysForbidden(const FilterOptions& options);

/// The additional filter once calls run: forbids to start processes and programs. A fork fails with
/// EPERM without a signal, because libc blocks signals while it forks. `gpus`: as in FilterOptions.
FilterProgram forbiddenDuringCalls(bool gpus);

/// Installs the filter for all threads of this process and for what they start; it can't be
/// removed. The process must have no_new_privs. Throws SystemCallError, or std::runtime_error if a
/// thread has installed a filter of its own.
void installFilter(const FilterProgram& program);

/// The index of the argument that names a thread, for a system call that is allowed for the threads
/// of this process only; otherwise nullopt. A filter can't check this, because it does not know the
/// threads' numbers. Async-signal-safe.
std::optional<size_t> threadArgument(int number);

/// True for the name of a forbidden system call that changes attributes of a file,
/// not its contents.
bool changesFiles(const std::string& callName);

/// The name of a system call that one of these filters forbids ("ptrace"), by its number.
std::optional<std::string> forbiddenCallName(size_t number);

}  // namespace isopool::worker
