// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/guardian.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "base/fd.h"
#include "base/parent_death.h"
#include "base/unix_address.h"
#include "supervisor/processes/detach.h"
#include "supervisor/processes/service_manager.h"

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
                                         SIGPROF, SIGIO,   SIGPIPE, SIGXFSZ};
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

/// A service manager at an abstract address.
class Manager {
 public:
  Manager() : name_("@isopool-guardian-" + std::to_string(::getpid())) {
    socket_ = base::Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto address = base::UnixAddress::ofPathOrAbstractName(name_).value();
    EXPECT_EQ(::bind(socket_.get(), address.get(), address.bytes()), 0);
    const int on = 1;
    EXPECT_EQ(::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
    const timeval patience{kPatience / 1000, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  }
  ~Manager() { ::unsetenv("NOTIFY_SOCKET"); }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  /// The next notification, after the pid of the process that sent it.
  std::string next() const {
    char text[256];
    alignas(cmsghdr) char ancillary[CMSG_SPACE(sizeof(ucred))];
    iovec part{text, sizeof text};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = ancillary;
    message.msg_controllen = sizeof ancillary;
    const ssize_t bytes = ::recvmsg(socket_.get(), &message, 0);
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (bytes < 0 || header == nullptr) return "nothing comes";
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
    return std::to_string(sender.pid) + " " + std::string(text, static_cast<size_t>(bytes));
  }

 private:
  std::string name_;
  base::Fd socket_;
};

/// Starts a guardian whose supervisor notifies its manager by `notify`, and then exits.
pid_t startNotifying(const std::function<void(ServiceManager&)>& notify) {
  const pid_t started = ::fork();
  if (started != 0) return started;
  try {
    ServiceManager manager = ServiceManager::fromEnvironment();
    detachStandalone({}, manager.throughRelay());
    notify(manager);
    ::_exit(0);
  } catch (const std::exception&) {
    ::_exit(99);
  }
}

int exitCodeOf(pid_t process) {
  int status = -1;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForegroundGuardian, NotifiesTheManagerAsTheProcessThatWasStarted) {
  const Manager manager;
  const pid_t started = startNotifying([](ServiceManager& supervisor) {
    supervisor.ready("serving");
    supervisor.alive();
    supervisor.stopping("the last");
  });
  const std::string sender = std::to_string(started) + " ";
  EXPECT_EQ(manager.next(), sender + "READY=1\nSTATUS=serving");
  EXPECT_EQ(manager.next(), sender + "WATCHDOG=1");
  EXPECT_EQ(manager.next(), sender + "STOPPING=1\nSTATUS=the last");
  EXPECT_EQ(exitCodeOf(started), 0);
}

TEST(ForegroundGuardian, NotifiesAManagerThatDoesNotReadForAWhile) {
  const Manager manager;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const base::Fd input(ends[0]);
  base::Fd output(ends[1]);
  const pid_t started = startNotifying([&](ServiceManager& supervisor) {
    // More than the queues of the manager's socket and of the relay hold.
    for (int i = 0; i < 2000; ++i) supervisor.alive();
    say(output.get(), "full");
    supervisor.stopping("the last");
    // Until the test ends: alive() sends what there was no room for.
    for (;;) {
      supervisor.alive();
      ::usleep(1000);
    }
  });
  output.close();
  char text[4];
  ASSERT_EQ(::read(input.get(), text, sizeof text), 4);
  std::string next;
  do {
    next = manager.next();
  } while (next == std::to_string(started) + " WATCHDOG=1");
  EXPECT_EQ(next, std::to_string(started) + " STOPPING=1\nSTATUS=the last");
  ::kill(started, SIGKILL);
  ::waitpid(started, nullptr, 0);
}

// Process 1 of a container gets the orphans of processes that the supervisor did not start.
TEST(ForegroundGuardian, ReapsChildrenThatItHasNotStarted) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const base::Fd input(ends[0]);
  base::Fd output(ends[1]);
  const pid_t guardian = ::fork();
  if (guardian == 0) {
    const pid_t self = ::getpid();
    const pid_t stranger = ::fork();
    if (stranger == 0) {
      base::endWithParent(self);
      for (;;) ::pause();
    }
    detachStandalone();
    (void)!::write(output.get(), &stranger, sizeof stranger);
    for (;;) ::pause();
  }
  output.close();
  pid_t stranger = -1;
  ASSERT_EQ(::read(input.get(), &stranger, sizeof stranger), ssize_t{sizeof stranger});
  ASSERT_EQ(::kill(stranger, SIGKILL), 0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
  // A zombie still takes signals.
  while (::kill(stranger, 0) == 0 && std::chrono::steady_clock::now() < deadline) ::usleep(1000);
  EXPECT_EQ(::kill(stranger, 0), -1) << "it is still a zombie";
  ::kill(guardian, SIGKILL);
  ::waitpid(guardian, nullptr, 0);
}

}  // namespace
}  // namespace isopool::supervisor
