// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <initializer_list>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/close_descriptors.h"
#include "base/log/log.h"
#include "base/parent_death.h"
#include "base/procfs.h"
#include "base/signal_text.h"
#include "base/system_call.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"
#include "ipc/control/guardian_messages.h"
#include "ipc/crash_point.h"
#include "supervisor/processes/succession.h"
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

// A supervisor that the guardian has started.
struct Guarded {
  pid_t pid = 0;  ///< 0: it has ended
  ipc::ControlSocket link;
  std::optional<NotificationRelay> relay;
  std::string folders;
  std::optional<base::TimePoint> giveUp;  ///< when it is killed: a successor, or a predecessor
  /// Of a successor: why it does not serve; of a predecessor: why it was killed. Empty: not known.
  std::string failure;
};

/// The guardian of supervisors in the foreground, after it has lost all descriptors but its own and
/// the error stream.
/// One of them serves. It may have a successor that starts, and predecessors that end.
class ForegroundGuardian {
 public:
  ForegroundGuardian(pid_t guarded, base::Fd link, base::Fd signals,
                     std::optional<NotificationRelay> relay, const std::string& folders)
      : signals_(std::move(signals)), program_(SupervisorProgram::ofThisProcess()) {
    serving_ = {guarded, ipc::ControlSocket(std::move(link)), std::move(relay), folders, {}, {}};
  }

  /// Returns the status, as from waitpid(), with which the supervisor that serves has ended, when
  /// its predecessors have ended, too, unless it failed.
  int awaitEnd() {
    while (!ended_) {
      awaitEvent();
      if (serving_.relay) serving_.relay->forward();
      readMessages();
      readSignals();
      killLate();
    }
    return *ended_;
  }
  /// Of all its supervisors.
  std::vector<std::string> folders() const {
    std::vector<std::string> all{serving_.folders};
    if (successor_) all.push_back(successor_->folders);
    for (const Guarded& each : predecessors_) all.push_back(each.folders);
    all.insert(all.end(), abandoned_.begin(), abandoned_.end());
    return all;
  }

 private:
  void awaitEvent() const {
    constexpr int kRetry = 100;  // ms
    const bool blocked = serving_.relay && serving_.relay->blocked();
    std::vector<pollfd> awaited{
        {signals_.get(), POLLIN, 0},
        {serving_.relay && !blocked ? serving_.relay->input().get() : -1, POLLIN, 0},
        {serving_.link.fd(), POLLIN, 0}};
    if (successor_) awaited.push_back({successor_->link.fd(), POLLIN, 0});
    const bool mayBeLate = successor_ || !predecessors_.empty();
    ::poll(awaited.data(), awaited.size(), blocked ? kRetry : mayBeLate ? kLook : -1);
  }

  // ---- messages ------------------------------------------------------------------------------

  void readMessages() {
    for (const ipc::Frame& frame : framesOf(serving_.link)) {
      if (frame.type == ipc::MessageType::kStartSuccessor) startSuccessor(frame);
    }
    if (successor_ && readSuccessor()) successorServes();
  }

  // True if the successor serves.
  bool readSuccessor() {
    for (const ipc::Frame& frame : framesOf(successor_->link)) {
      if (frame.type == ipc::MessageType::kServes) return true;
      if (frame.type == ipc::MessageType::kFailure) successor_->failure = failureIn(frame);
    }
    return false;
  }

  static std::string failureIn(const ipc::Frame& frame) {
    try {
      return ipc::decodeMessage<ipc::Failure>(frame).text;
    } catch (const ipc::ProtocolError&) {
      return {};
    }
  }

  static std::vector<ipc::Frame> framesOf(ipc::ControlSocket& link) {
    std::vector<ipc::Frame> frames;
    if (!link.valid()) return frames;
    try {
      const bool gone = link.receive() == ipc::ReceiveResult::kPeerGone;
      while (std::optional<ipc::Frame> frame = link.next()) frames.push_back(*std::move(frame));
      if (gone) link.close();
    } catch (const std::exception&) {
      link.close();  // its supervisor reports that a restart fails
    }
    return frames;
  }

  void startSuccessor(const ipc::Frame& frame) {
    if (successor_) return tellServing(ipc::SuccessorEnded{"another one is being started"});
    try {
      if (passedOnTheEnd_) throw std::runtime_error("the service is shutting down");
      start(frame);
      ipc::reachCrashPoint(ipc::CrashPoint::kSuccessorSpawned);
    } catch (const std::exception& error) {
      successor_.reset();
      tellServing(ipc::SuccessorEnded{error.what()});
    }
  }

  void start(const ipc::Frame& frame) {
    const auto request = ipc::decodeMessage<ipc::StartSuccessor>(frame);
    if (frame.descriptors.size() < 4) throw ipc::ProtocolError("descriptors are missing");
    std::vector<base::Fd> given;
    for (const base::Fd& each : frame.descriptors) given.push_back(each.duplicate());
    auto [ours, theirs] = ipc::ControlSocket::makePair();
    Inheritance inheritance;
    inheritance.guardian = std::move(theirs);
    inheritance.socket = std::move(given[3]);
    if (given.size() > 4) inheritance.lock = std::move(given[4]);
    inheritance.folders = reserveWorkerFolders();
    Guarded& next = successor_.emplace();
    next.link = ipc::ControlSocket(std::move(ours));
    next.folders = inheritance.folders;
    next.giveUp = std::chrono::steady_clock::now() + base::Milliseconds(request.startMilliseconds);
    if (serving_.relay) {
      int ends[2];
      base::checkSystemCall(
          ::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), "socketpair");
      inheritance.notifications = base::Fd(ends[0]);
      next.relay = serving_.relay->forAnother(base::Fd(ends[1]));
    }
    drainTime_ = base::Milliseconds(request.drainMilliseconds);
    next.pid = program_.start(
        given, inheritance,
        request.watchdogMicroseconds != 0 ? std::to_string(request.watchdogMicroseconds) : "");
  }

  void successorServes() {
    Guarded former = std::exchange(serving_, *std::move(successor_));
    successor_.reset();
    serving_.giveUp.reset();
    // Its notifications are of no more interest: it ends, the service does not.
    former.relay.reset();
    former.giveUp = std::chrono::steady_clock::now() + drainTime_;
    former.link.send(ipc::SuccessorServes{}, {}, base::Milliseconds(0));
    predecessors_.push_back(std::move(former));
    ipc::reachCrashPoint(ipc::CrashPoint::kSuccessorAnnounced);
  }

  template <typename Message>
  void tellServing(const Message& message) {
    if (serving_.link.valid()) serving_.link.send(message, {}, base::Milliseconds(0));
  }

  // ---- signals and ends ----------------------------------------------------------------------

  void readSignals() {
    signalfd_siginfo info{};
    while (!ended_ && ::read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) {
        reapChildren();
      } else {
        passOn(asPassedOn(info));
      }
    }
  }

  // The children are not reaped yet, so the pids are still theirs.
  void passOn(int signal) {
    if (serving_.pid != 0) ::kill(serving_.pid, signal);
    if (successor_) ::kill(successor_->pid, signal);
    if (signal == SIGHUP) return;  // those that drain need no new settings
    passedOnTheEnd_ = true;
    for (const Guarded& each : predecessors_) ::kill(each.pid, signal);
  }

  void killLate() {
    const auto isLate = [now = std::chrono::steady_clock::now()](const Guarded& each) {
      return each.giveUp && now > *each.giveUp;
    };
    if (successor_ && isLate(*successor_)) {
      successor_->failure = "the guardian killed it, because zygote_timeout has passed";
      ::kill(successor_->pid, SIGKILL);
    }
    for (Guarded& each : predecessors_) {
      if (!isLate(each)) continue;
      each.failure = "the guardian killed it, because it did not end after drain_timeout";
      ::kill(each.pid, SIGKILL);
    }
  }

  void reapChildren() {
    for (;;) {
      int status = 0;
      const pid_t reaped = ::waitpid(-1, &status, WNOHANG);
      if (reaped == -1 && errno == EINTR) continue;
      if (reaped <= 0) break;
      if (reaped == serving_.pid) {
        servingEnded(status);
      } else if (successor_ && reaped == successor_->pid) {
        successorEnded(status);
      } else {
        predecessorEnded(reaped, status);
      }
    }
    if (strangersLeft_) killStrangers();
    if (strangersLeft_) return;
    for (const std::string& each : std::exchange(abandoned_, {})) removeLeftovers(each);
  }

  void servingEnded(int status) {
    if (serving_.relay) serving_.relay->forward();
    serving_.pid = 0;
    if (WIFSIGNALED(status)) {
      base::log(base::LogLevel::kError,
                "the supervisor was killed by " + base::signalText(WTERMSIG(status)) +
                    (successor_ ? ": its calls in flight are lost, and its successor takes over"
                                : ": all processes of the service end"));
    }
    if (successor_) {
      // It has the listening socket: connections wait until it serves.
      const std::string folders = std::exchange(serving_, *std::move(successor_)).folders;
      successor_.reset();
      return clearAfter(folders);
    }
    lastStatus_ = status;
    // Another one shall be started soon if this one failed.
    if (predecessors_.empty() || !WIFEXITED(status) || WEXITSTATUS(status) != 0) ended_ = status;
  }

  void successorEnded(int status) {
    // Its last message may have come after the messages were read.
    readSuccessor();
    const Guarded ended = *std::exchange(successor_, std::nullopt);
    tellServing(ipc::SuccessorEnded{"it ended before it served, " +
                                    (WIFEXITED(status)
                                         ? "with exit code " + std::to_string(WEXITSTATUS(status))
                                         : "by signal " + std::to_string(WTERMSIG(status))) +
                                    (!ended.failure.empty() ? ": " + ended.failure
                                     // It could not say why.
                                     : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                         ? ": another process or the kernel killed it"
                                         : "; its lines of the log have the reason")});
    clearAfter(ended.folders);
  }

  void predecessorEnded(pid_t reaped, int status) {
    const auto found = std::find_if(predecessors_.begin(), predecessors_.end(),
                                    [&](const Guarded& each) { return each.pid == reaped; });
    if (found == predecessors_.end()) return;
    if (WIFSIGNALED(status) && !passedOnTheEnd_) {
      base::log(base::LogLevel::kError, "the supervisor that was replaced was killed by " +
                                            base::signalText(WTERMSIG(status)) +
                                            ": its calls in flight are lost" +
                                            (found->failure.empty() ? "" : "; " + found->failure));
    }
    const std::string folders = found->folders;
    predecessors_.erase(found);
    clearAfter(folders);
    if (serving_.pid == 0 && predecessors_.empty()) ended_ = lastStatus_;
  }

  // A supervisor has ended, and others go on: first its processes end, then their folders.
  void clearAfter(const std::string& folders) {
    strangersLeft_ = true;
    abandoned_.push_back(folders);
  }

  // The orphans of a supervisor become this process's children when it ends, and theirs when they
  // end. Process 1 also gets orphans that no supervisor has ever had, which it leaves alone.
  void killStrangers() {
    strangersLeft_ = false;
    if (::getpid() == 1) return;
    for (const pid_t child : base::childrenOf(::getpid())) {
      const bool guarded = child == serving_.pid || (successor_ && child == successor_->pid) ||
                           std::any_of(predecessors_.begin(), predecessors_.end(),
                                       [&](const Guarded& each) { return each.pid == child; });
      if (!guarded && ::kill(child, SIGKILL) == 0) strangersLeft_ = true;
    }
  }

  static constexpr int kLook = 1000;  // ms; between two looks for a supervisor that is late

  base::Fd signals_;
  const SupervisorProgram program_;
  Guarded serving_;
  std::optional<Guarded> successor_;
  std::vector<Guarded> predecessors_;
  base::Milliseconds drainTime_{0};
  bool strangersLeft_ = false;
  std::vector<std::string> abandoned_;  ///< folders of supervisors that have ended
  bool passedOnTheEnd_ = false;
  int lastStatus_ = 0;
  std::optional<int> ended_;
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
  killAllDescendants();
  removeLeftovers(folders);
  ::_exit(0);
}

base::Fd continueUnderForegroundGuardian(const std::string& folders,
                                         std::optional<NotificationRelay> relay) {
  base::checkSystemCall(::prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl(PR_SET_CHILD_SUBREAPER)");
  // The parent process may have left SIGCHLD ignored: then it would not arrive.
  ::signal(SIGCHLD, SIG_DFL);
  const sigset_t blocked = blockedInGuardian();
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  const sigset_t awaited = setOf({SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGABRT, SIGCHLD});
  base::Fd signals(
      base::checkSystemCall(::signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd"));
  auto [ours, theirs] = ipc::ControlSocket::makePair();
  const pid_t guardian = ::getpid();
  const pid_t guarded = base::checkSystemCall(::fork(), "fork");
  if (guarded != 0) {
    theirs.close();
    ::prctl(PR_SET_NAME, kName);
    // Closes the listening socket, too: connections shall be refused when the supervisor has ended.
    std::vector<int> kept{STDERR_FILENO, signals.get(), ours.get()};
    if (relay) kept.insert(kept.end(), {relay->input().get(), relay->manager().get()});
    base::closeDescriptorsBut(kept, 0);
    base::releaseLogFile();
    ipc::reachCrashPoint(ipc::CrashPoint::kGuardianWatching);
    ForegroundGuardian watching(guarded, std::move(ours), std::move(signals), std::move(relay),
                                folders);
    const int status = watching.awaitEnd();
    ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorDeathSeen);
    killAllDescendants();
    for (const std::string& each : watching.folders()) removeLeftovers(each);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  base::endWithParent(guardian);
  base::checkSystemCall(::setsid(), "setsid");
  const sigset_t handled = handledSignals();
  ::sigprocmask(SIG_SETMASK, &handled, nullptr);
  return std::move(theirs);
}

}  // namespace isopool::supervisor
