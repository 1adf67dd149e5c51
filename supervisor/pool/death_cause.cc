// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/death_cause.h"

#include <signal.h>

#include "ipc/worker_exit.h"

namespace isopool::supervisor {

DeathCause causeOf(const ExitStatus& status) {
  switch (status.signal) {
    case 0:
      if (status.exitCode == ipc::kUnfitWorkerExit) return DeathCause::kUnfit;
      return status.exitCode == ipc::kGivenUpWorkerExit ? DeathCause::kGaveUp : DeathCause::kExit;
    case SIGKILL:
      if (status.killedForOwnLimit) return DeathCause::kMemoryLimit;
      return status.killedForMemory.value_or(false) ? DeathCause::kOutOfMemory
                                                    : DeathCause::kKilled;
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGABRT:
    case SIGTRAP:
      return DeathCause::kCrash;
    case SIGSYS:
      return DeathCause::kForbiddenCall;
    default:
      return DeathCause::kSignal;
  }
}

}  // namespace isopool::supervisor
