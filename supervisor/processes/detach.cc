// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/detach.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "base/close_descriptors.h"
#include "base/system_call.h"
#include "ipc/crash_point.h"
#include "supervisor/processes/guardian.h"

namespace isopool::supervisor {

namespace {

constexpr const char* kOomAdjustment = "/proc/self/oom_score_adj";

// Signals that the supervisor does not use. They are ignored, because their default action would
// end the process.
bool meansNothing(int signal) {
  switch (signal) {
    case SIGPIPE:
    case SIGXFSZ:
    case SIGUSR1:
    case SIGUSR2:
    case SIGALRM:
    case SIGVTALRM:
    case SIGPROF:
    case SIGIO:
    case SIGPWR:
    case SIGSTKFLT:
      return true;
    default:
      return signal >= SIGRTMIN;
  }
}

void resetSignalHandlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    action.sa_handler = meansNothing(signal) ? SIG_IGN : SIG_DFL;
    ::sigaction(signal, &action, nullptr);  // fails for SIGKILL and SIGSTOP
  }
}

void unblockSignals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// About ten descriptors per worker.
rlimit raiseOpenFiles() {
  rlimit before{};
  if (::getrlimit(RLIMIT_NOFILE, &before) == 0) {
    const rlimit all{before.rlim_max, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &all);
  }
  return before;
}

// Workers use the memory: the out-of-memory killer shall choose one of them, not the supervisor,
// whose end would end all of them. Best effort: lowering the score needs a privilege.
std::string lowerOomScore() {
  std::string before;
  std::ifstream(kOomAdjustment) >> before;
  std::ofstream(kOomAdjustment) << "-500";
  return before;
}

// On a loaded machine the supervisor shall not wait for processors as long as the processes that
// load it: it runs no user code and needs little time, but all programs may need an answer at once.
// Best effort: lowering the niceness needs a privilege. Returns the former one if it was changed.
std::optional<int> lowerNiceness() {
  constexpr int kNiceness = -10;
  errno = 0;
  const int before = ::getpriority(PRIO_PROCESS, 0);
  if (errno != 0 || before <= kNiceness) return std::nullopt;
  if (::setpriority(PRIO_PROCESS, 0, kNiceness) != 0) return std::nullopt;
  return before;
}

InheritedLimits becomeSupervisor() {
  ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorGuarded);
  base::checkSystemCall(::prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl(PR_SET_CHILD_SUBREAPER)");
  InheritedLimits inherited;
  inherited.openFiles = raiseOpenFiles();
  inherited.oomScoreAdjustment = lowerOomScore();
  inherited.niceness = lowerNiceness();
  return inherited;
}

}  // namespace

void closeInheritedDescriptors(const std::vector<int>& kept) {
  for (int standard = 0; standard <= 2; ++standard) {
    // open() returns the lowest free number.
    if (::fcntl(standard, F_GETFD) == -1) ::open("/dev/null", O_RDWR);
  }
  base::closeDescriptorsBut(kept, 3);
  for (const int descriptor : kept) {
    base::checkSystemCall(::fcntl(descriptor, F_SETFD, FD_CLOEXEC), "fcntl(F_SETFD)", descriptor);
  }
}

InheritedLimits detach(const std::string& folders) {
  // Before the fork: then the id of the guardian's process group is the pid of the process that the
  // program started. The program uses it to reap the guardian, if that becomes its child.
  const bool leads = ::setsid() != -1;
  if (base::checkSystemCall(::fork(), "fork") != 0) ::_exit(0);
  if (!leads) base::checkSystemCall(::setsid(), "setsid");
  resetSignalHandlers();
  unblockSignals();
  continueUnderGuardian(folders);
  base::checkSystemCall(::setsid(), "setsid");
  return becomeSupervisor();
}

Detached detachStandalone(const std::string& folders, std::optional<NotificationRelay> relay) {
  resetSignalHandlers();
  base::Fd guardian = continueUnderForegroundGuardian(folders, std::move(relay));
  return {becomeSupervisor(), std::move(guardian)};
}

InheritedLimits detachSuccessor() {
  resetSignalHandlers();
  return becomeSupervisor();
}

}  // namespace isopool::supervisor
