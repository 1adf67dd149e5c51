// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/exit_status.h"

#include <signal.h>

#include <cstring>

#include "base/signal_text.h"
#include "ipc/worker_exit.h"

namespace isopool::supervisor {

namespace {

std::string killedFromOutside(const std::optional<bool>& forMemory) {
  if (!forMemory) {
    return "killed from outside: by the kernel's out-of-memory killer, by another process or by "
           "its own code";
  }
  if (!*forMemory) return "killed from outside: by another process, or by its own code";
  return "killed from outside: by the kernel's out-of-memory killer; sandbox.memory "
         "(ISOPOOL_WORKER_MEMORY) limits each worker, so that a call fails instead";
}

}  // namespace

std::string ExitStatus::describe() const {
  if (signal == 0) return "exited with code " + std::to_string(exitCode);
  return "was killed by " + base::signalText(signal);
}

std::string ExitStatus::name() const {
  if (signal == 0) return "exit code " + std::to_string(exitCode);
  const char* abbreviation = ::sigabbrev_np(signal);
  return abbreviation != nullptr ? std::string("SIG") + abbreviation
                                 : "signal " + std::to_string(signal);
}

std::string ExitStatus::likelyCause() const {
  switch (signal) {
    case 0:
      // The worker has no room for its reason in its crash log.
      if (exitCode == ipc::kUnfitWorkerExit) return "user code left it unfit for other programs";
      return "it exited by itself";
    case SIGKILL:
      if (killedForOwnLimit) {
        return "the kernel killed it: with the processes that its code had started it needed more "
               "memory than its control group allows (ISOPOOL_WORKER_MEMORY)";
      }
      return killedFromOutside(killedForMemory);
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGABRT:
    case SIGTRAP:
      return "a crash in native code";
    case SIGSYS:
      return "a system call that a filter forbids";
    default:
      return "a signal from another process or from user code";
  }
}

}  // namespace isopool::supervisor
