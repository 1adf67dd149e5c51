// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/close_descriptors.h"
#include "base/fd.h"
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

int asPassedOn(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  // A terminal that hangs up ends the program that it ran, so SIGHUP does not mean "reload" here.
  const bool hangUp = signal == SIGHUP && info.ssi_code == SI_KERNEL;
  return signal == SIGINT || hangUp ? SIGTERM : signal;
}

// Reaps all dead children. Returns the status of the guarded one, if it was among them.
std::optional<int> reapChildren(pid_t guarded) {
  std::optional<int> found;
  for (;;) {
    int status = 0;
    const pid_t reaped = ::waitpid(-1, &status, WNOHANG);
    if (reaped == guarded) found = status;
    if (reaped == 0 || (reaped == -1 && errno != EINTR)) return found;
  }
}

/// The guardian of a supervisor in the foreground, after it has lost all descriptors but its own.
class ForegroundGuardian {
 public:
  ForegroundGuardian(pid_t guarded, base::Fd signals, std::optional<NotificationRelay> relay)
      : guarded_(guarded), signals_(std::move(signals)), relay_(std::move(relay)) {}

  /// Returns the status with which the supervisor has ended, as from waitpid().
  int awaitEnd() {
    for (;;) {
      awaitEvent();
      if (relay_) relay_->forward();
      signalfd_siginfo info{};
      while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
          // The child is not reaped yet, so the pid is still its own.
          ::kill(guarded_, asPassedOn(info));
        } else if (const std::optional<int> status = reapChildren(guarded_)) {
          if (relay_) relay_->forward();
          return *status;
        }
      }
    }
  }

 private:
  void awaitEvent() const {
    constexpr int kRetry = 100;  // ms
    const bool blocked = relay_ && relay_->blocked();
    pollfd awaited[] = {{signals_.get(), POLLIN, 0},
                        {relay_ && !blocked ? relay_->input().get() : -1, POLLIN, 0}};
    ::poll(awaited, 2, blocked ? kRetry : -1);
  }

  const pid_t guarded_;
  base::Fd signals_;
  std::optional<NotificationRelay> relay_;
};

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

void continueUnderForegroundGuardian(const std::string& folders,
                                     std::optional<NotificationRelay> relay) {
  base::checkSystemCall(::prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl(PR_SET_CHILD_SUBREAPER)");
  // The parent process may have left SIGCHLD ignored: then it would not arrive.
  ::signal(SIGCHLD, SIG_DFL);
  const sigset_t blocked = blockedInGuardian();
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  const sigset_t awaited = setOf({SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGABRT, SIGCHLD});
  base::Fd signals(
      base::checkSystemCall(::signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd"));
  const pid_t guardian = ::getpid();
  const pid_t guarded = base::checkSystemCall(::fork(), "fork");
  if (guarded != 0) {
    ::prctl(PR_SET_NAME, kName);
    // Closes the listening socket, too: connections shall be refused when the supervisor has ended.
    std::vector<int> kept{signals.get()};
    if (relay) kept.insert(kept.end(), {relay->input().get(), relay->manager().get()});
    base::closeDescriptorsBut(kept, 0);
    ipc::reachCrashPoint(ipc::CrashPoint::kGuardianWatching);
    const int status = ForegroundGuardian(guarded, std::move(signals), std::move(relay)).awaitEnd();
    ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorDeathSeen);
    cleanUp(folders);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  base::checkSystemCall(::prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl(PR_SET_PDEATHSIG)");
  // The guardian may have died before prctl().
  if (::getppid() != guardian) ::_exit(128 + SIGKILL);
  base::checkSystemCall(::setsid(), "setsid");
  const sigset_t handled = handledSignals();
  ::sigprocmask(SIG_SETMASK, &handled, nullptr);
}

}  // namespace isopool::supervisor
