// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>

#include "supervisor/processes/exit_status.h"

namespace isopool::supervisor {

/// Why a worker died, as a program that counts deaths distinguishes it. The text for people is
/// Worker::cause().
enum class DeathCause {
  kCrash,          ///< a signal of its own code: SIGSEGV, SIGABRT and similar
  kOutOfMemory,    ///< SIGKILL of the kernel because the machine or the container had no memory
  kMemoryLimit,    ///< killed: it and its user code's processes had more than sandbox.memory
  kKilled,         ///< another SIGKILL that isopoold did not send, or one whose sender is unknown
  kForbiddenCall,  ///< SIGSYS: a system call that a filter forbids
  kSignal,         ///< another signal
  kExit,           ///< it exited by itself
  kUnfit,          ///< it exited because user code had left it unfit for other programs
  kGaveUp,         ///< it exited because it could not go on, and reported why
  kOverdue,        ///< killed: a call continued after its deadline or limits.call_time, or after
                   ///< the program of a private pool had cancelled it
  kClientLeft,     ///< killed: code of a client that had left continued
  kUnresponsive,   ///< killed: too slow to start, or to attach or detach a channel
  kStopped,        ///< killed: a signal had stopped it
  kProtocol,       ///< killed: it sent an invalid message, or closed its control socket
  kReported,       ///< killed: its clients reported that it was unusable
  kNotStarted,     ///< the zygote could not fork it, or there was no memory for its channel
  kUnknown         ///< none of those above; the exit status decides
};

inline constexpr size_t kDeathCauses = static_cast<size_t>(DeathCause::kUnknown);

/// The name in reports of each cause before kUnknown. Stable: metrics have it as a label.
inline constexpr std::array<const char*, kDeathCauses> kDeathCauseNames{
    "crash",   "out_of_memory", "memory_limit", "killed",     "forbidden_call", "signal",
    "exit",    "unfit",         "gave_up",      "overdue",    "client_left",    "unresponsive",
    "stopped", "protocol",      "reported",     "not_started"};

/// The cause of an end that the supervisor did not cause, from the exit status alone. Never
/// kUnknown.
DeathCause causeOf(const ExitStatus& status);

}  // namespace isopool::supervisor
