// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/guardian.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

#include "base/close_descriptors.h"
#include "base/procfs.h"
#include "base/system_call.h"
#include "ipc/crash_point.h"
#include "supervisor/processes/worker_folders.h"

namespace isopool::supervisor {

namespace {

constexpr const char* kName = "isopoold-guard";

pid_t waitForOne(pid_t which) {
  pid_t reaped = 0;
  do {
    reaped = ::waitpid(which, nullptr, 0);
  } while (reaped == -1 && errno == EINTR);
  return reaped;
}

// The children of a killed process become ours, so this ends when no descendant is left.
void killAllDescendants() {
  do {
    for (const pid_t child : base::childrenOf(::getpid())) ::kill(child, SIGKILL);
  } while (waitForOne(-1) != -1);
}

void cleanUp(const std::string& folders) {
  killAllDescendants();
  removeLeftovers(folders);
}

sigset_t setOf(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  return set;
}

// All signals but those by which a terminal stops a program. A blocked signal that the guardian
// does not wait for stays pending, so it can't end the guardian.
sigset_t blockedInGuardian() {
  sigset_t set;
  ::sigfillset(&set);
  for (const int signal : {SIGTSTP, SIGTTIN, SIGTTOU}) ::sigdelset(&set, signal);
  return set;
}

// The signals that the supervisor has handlers for, once it runs.
sigset_t handledSignals() { return setOf({SIGTERM, SIGHUP}); }

int asPassedOn(const siginfo_t& info) {
  // A terminal that hangs up ends the program that it ran, so SIGHUP does not mean "reload" here.
  const bool hangUp = info.si_signo == SIGHUP && info.si_code == SI_KERNEL;
  return info.si_signo == SIGINT || hangUp ? SIGTERM : info.si_signo;
}

[[noreturn]] void guardInForeground(pid_t guarded, const sigset_t& signals,
                                    const std::string& folders) {
  for (;;) {
    siginfo_t info{};
    if (::sigwaitinfo(&signals, &info) == -1) continue;
    if (info.si_signo != SIGCHLD) {
      // The child is not reaped yet, so the pid is still its own.
      ::kill(guarded, asPassedOn(info));
      continue;
    }
    int status = 0;
    if (::waitpid(guarded, &status, WNOHANG) != guarded) continue;
    ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorDeathSeen);
    cleanUp(folders);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
}

}  // namespace

void continueUnderGuardian(const std::string& folders) {
  base::checkSystemCall(::prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl(PR_SET_CHILD_SUBREAPER)");
  const pid_t guarded = base::checkSystemCall(::fork(), "fork");
  if (guarded == 0) return;
  ::prctl(PR_SET_NAME, kName);
  const sigset_t blocked = blockedInGuardian();
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  // Otherwise readers of the user's pipes would never see their end.
  base::closeDescriptorsBut({}, 0);
  ipc::reachCrashPoint(ipc::CrashPoint::kGuardianWatching);
  waitForOne(guarded);
  ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorDeathSeen);
  cleanUp(folders);
  ::_exit(0);
}

void continueUnderForegroundGuardian(const std::string& folders) {
  base::checkSystemCall(::prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl(PR_SET_CHILD_SUBREAPER)");
  // The parent process may have left SIGCHLD ignored: then it would not arrive.
  ::signal(SIGCHLD, SIG_DFL);
  const sigset_t blocked = blockedInGuardian();
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  const pid_t guardian = ::getpid();
  const pid_t guarded = base::checkSystemCall(::fork(), "fork");
  if (guarded != 0) {
    ::prctl(PR_SET_NAME, kName);
    // Includes the listening socket: connections shall be refused when the supervisor has ended.
    base::closeDescriptorsBut({}, 0);
    ipc::reachCrashPoint(ipc::CrashPoint::kGuardianWatching);
    guardInForeground(guarded, setOf({SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGABRT, SIGCHLD}),
                      folders);
  }
  base::checkSystemCall(::prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl(PR_SET_PDEATHSIG)");
  // The guardian may have died before prctl().
  if (::getppid() != guardian) ::_exit(128 + SIGKILL);
  base::checkSystemCall(::setsid(), "setsid");
  const sigset_t handled = handledSignals();
  ::sigprocmask(SIG_SETMASK, &handled, nullptr);
}

}  // namespace isopool::supervisor
