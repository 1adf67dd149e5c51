// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/guardian.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "base/fd.h"
#include "supervisor/processes/detach.h"

namespace isopool::supervisor {
namespace {

constexpr int kPatience = 10'000;  // milliseconds

/// A process that is started in the foreground and splits itself into guardian and supervisor. The
/// supervisor runs `body` with the write end of a pipe, and exits with the value that it returns.
class Started {
 public:
  enum class Where { kHere, kTerminal };

  explicit Started(const std::function<int(int output)>& body, Where where = Where::kHere) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    int terminal = -1;
    pid_ = where == Where::kTerminal ? ::forkpty(&terminal, nullptr, nullptr, nullptr) : ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      try {
        detachStandalone();
        ::_exit(body(ends[1]));
      } catch (const std::exception&) {
        ::_exit(99);
      }
    }
    ::close(ends[1]);
    output_ = base::Fd(ends[0]);
    terminal_ = base::Fd(terminal);
  }
  ~Started() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int signal) const { EXPECT_EQ(::kill(pid_, signal), 0); }
  void hangUp() { terminal_.close(); }

  /// The next text from the pipe; empty when no process holds the write end any more.
  std::string read() const {
    pollfd readable{output_.get(), POLLIN, 0};
    if (::poll(&readable, 1, kPatience) != 1) return "nothing comes";
    char text[64];
    const ssize_t length = ::read(output_.get(), text, sizeof text);
    return std::string(text, static_cast<size_t>(length > 0 ? length : 0));
  }

  /// Waits for the end. Returns the exit code, or the negative number of the signal that killed it.
  int exitCode() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  base::Fd output_;
  base::Fd terminal_;
};

void say(int output, const std::string& text) {
  [[maybe_unused]] const ssize_t written = ::write(output, text.data(), text.size());
}

// Supervisors for the tests below.

int untilSignal(int output) {
  sigset_t awaited;
  ::sigemptyset(&awaited);
  for (const int signal : {SIGTERM, SIGHUP, SIGINT}) ::sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, nullptr);
  say(output, "waits");
  siginfo_t info{};
  return ::sigwaitinfo(&awaited, &info);
}

int forEver(int output) {
  say(output, "lives");
  for (;;) ::pause();
}

int withDaemon(int output) {
  if (::fork() == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    ::setsid();
    ::_exit(forEver(output));
  }
  for (;;) ::pause();
}

volatile sig_atomic_t handled = 0;

int withLateHandler(int output) {
  say(output, "waits");
  sigset_t pending;
  do {
    ::sched_yield();
    ::sigpending(&pending);
  } while (::sigismember(&pending, SIGTERM) == 0);
  ::signal(SIGTERM, [](int signal) { handled = signal; });
  ::sigprocmask(SIG_UNBLOCK, &pending, nullptr);
  return handled;
}

TEST(ForegroundGuardian, IsTheProcessThatWasStarted) {
  const Started started([](int output) {
    const bool ownSession = ::getsid(0) == ::getpid();
    say(output, std::to_string(::getppid()) + (ownSession ? " own session" : ""));
    return 0;
  });
  EXPECT_EQ(started.read(), std::to_string(started.pid()) + " own session");
}

TEST(ForegroundGuardian, EndsWithTheSupervisorsExitCode) {
  Started started([](int) { return 7; });
  EXPECT_EQ(started.exitCode(), 7);
}

TEST(ForegroundGuardian, EndsWith128AndTheSignalThatKilledTheSupervisor) {
  Started started([](int) { return ::raise(SIGKILL); });
  EXPECT_EQ(started.exitCode(), 128 + SIGKILL);
}

TEST(ForegroundGuardian, PassesSignalsOn) {
  constexpr int kSentAndSeen[][2] = {{SIGTERM, SIGTERM}, {SIGINT, SIGTERM}, {SIGHUP, SIGHUP}};
  for (const auto& [sent, seen] : kSentAndSeen) {
    Started started(untilSignal);
    ASSERT_EQ(started.read(), "waits");
    started.kill(sent);
    EXPECT_EQ(started.exitCode(), seen);
  }
}

TEST(ForegroundGuardian, AndItsSupervisorIgnoreSignalsThatMeanNothingToThem) {
  static constexpr int kMeaningless[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
                                         SIGPROF, SIGIO,   SIGPIPE};
  Started started([](int output) {
    for (const int signal : kMeaningless) ::raise(signal);
    ::raise(SIGRTMIN);
    return untilSignal(output);
  });
  ASSERT_EQ(started.read(), "waits");
  for (const int signal : kMeaningless) started.kill(signal);
  started.kill(SIGRTMIN);
  started.kill(SIGTERM);
  EXPECT_EQ(started.exitCode(), SIGTERM);
}

TEST(ForegroundGuardian, LetsAnAbortReachTheSupervisor) {
  Started started(forEver);
  ASSERT_EQ(started.read(), "lives");
  started.kill(SIGABRT);
  EXPECT_EQ(started.exitCode(), 128 + SIGABRT);
}

TEST(ForegroundGuardian, EndsTheSupervisorWhenTheTerminalHangsUp) {
  Started started(untilSignal, Started::Where::kTerminal);
  ASSERT_EQ(started.read(), "waits");
  started.hangUp();
  EXPECT_EQ(started.exitCode(), SIGTERM);
}

TEST(ForegroundGuardian, LosesNoSignalThatComesBeforeItsHandler) {
  Started started(withLateHandler);
  ASSERT_EQ(started.read(), "waits");
  started.kill(SIGTERM);
  EXPECT_EQ(started.exitCode(), SIGTERM);
}

TEST(ForegroundGuardian, TakesTheSupervisorAlongWhenKilled) {
  Started started(forEver);
  ASSERT_EQ(started.read(), "lives");
  started.kill(SIGKILL);
  EXPECT_EQ(started.read(), "") << "a process still holds the pipe";
  EXPECT_EQ(started.exitCode(), -SIGKILL);
}

TEST(ForegroundGuardian, TakesAStoppedSupervisorAlongWhenKilled) {
  Started started([](int output) {
    say(output, "stops");
    return ::raise(SIGSTOP);
  });
  ASSERT_EQ(started.read(), "stops");
  started.kill(SIGKILL);
  EXPECT_EQ(started.read(), "");
}

TEST(ForegroundGuardian, KillsDaemonsThatADeadSupervisorLeaves) {
  Started started(withDaemon);
  ASSERT_EQ(started.read(), "lives");
  started.kill(SIGABRT);
  EXPECT_EQ(started.exitCode(), 128 + SIGABRT);
  EXPECT_EQ(started.read(), "") << "the daemon lives";
}

TEST(ForegroundGuardian, HoldsNoDescriptorOfTheSupervisors) {
  Started started([](int output) {
    say(output, "closes");
    ::close(output);
    for (;;) ::pause();
    return 0;
  });
  ASSERT_EQ(started.read(), "closes");
  EXPECT_EQ(started.read(), "") << "the guardian holds the pipe";
}

}  // namespace
}  // namespace isopool::supervisor
