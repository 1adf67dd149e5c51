// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/supervisor_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/await_readable.h"
#include "base/running_time.h"
#include "base/signal_text.h"
#include "base/standard_streams.h"
#include "base/system_call.h"
#include "ipc/control/frame.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kControlFd = 3;
constexpr int kLifelineFd = 4;
// Descriptors that posix_spawn() copies to 3 and 4 must not have these numbers themselves.
constexpr int kAboveTheStandardOnes = 10;
constexpr int kLogPipeBytes = 256 << 10;
constexpr std::chrono::seconds kGuardianPatience(5);
// A killed process ends in milliseconds, unless the kernel waits for a device.
constexpr milliseconds kKillPatience(1000);

std::string folderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

base::Fd moveUp(base::Fd fd) {
  return base::Fd(base::checkSystemCall(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kAboveTheStandardOnes),
                                        "fcntl(F_DUPFD_CLOEXEC)", fd.get()));
}

/// The file actions and attributes for posix_spawn(); the destructor frees them.
class SpawnPlan {
 public:
  /// `output`: for the standard output and error stream; -1: this process's.
  SpawnPlan(int control, int lifeline, int output) {
    ::posix_spawn_file_actions_init(&actions_);
    if (output != -1) {
      ::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
      ::posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
    }
    ::posix_spawn_file_actions_adddup2(&actions_, control, kControlFd);
    ::posix_spawn_file_actions_adddup2(&actions_, lifeline, kLifelineFd);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  int run(const std::string& path, char* const* arguments, char* const* environment,
          pid_t& child) const {
    return ::posix_spawn(&child, path.c_str(), &actions_, &attributes_, arguments, environment);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// The read end, which does not block, and the write end.
std::pair<base::Fd, base::Fd> makeLogPipe() {
  int ends[2];
  base::checkSystemCall(::pipe2(ends, O_CLOEXEC), "pipe2");
  base::Fd writeEnd = moveUp(base::Fd(ends[1]));
  base::Fd readEnd = base::awayFromStandardStreams(base::Fd(ends[0]));
  ::fcntl(readEnd.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(readEnd.get(), F_SETPIPE_SZ, kLogPipeBytes);
  return {std::move(readEnd), std::move(writeEnd)};
}

// Why execve(2) has refused an environment, in words.
std::string tooLarge(const std::vector<std::string>& environment) {
  size_t all = 0;
  std::string_view largest;
  for (const std::string& each : environment) {
    all += each.size() + 1;
    if (each.size() > largest.size()) largest = each;
  }
  return "the supervisor can't be started: this program's environment of " + std::to_string(all) +
         " bytes is more than the system passes to a new process (execve(2): 128 KiB for a "
         "variable, and a quarter of the stack's limit for all); its largest variable, " +
         std::string(largest.substr(0, largest.find('='))) + ", has " +
         std::to_string(largest.size()) + " bytes";
}

// For posix_spawn(), which does not write to the texts.
std::vector<char*> pointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Waits until the child has ended, and reaps it: the signal that killed it, or 0. If the program
// reaps its children elsewhere, that is an end, too, and 0. If the child does not end in time,
// kills it and returns nothing.
std::optional<int> reapWithin(pid_t child, milliseconds patience) {
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  base::RunningTime waited;
  int status = 0;
  pid_t reaped = 0;
  // While this is 0, the number is the child's.
  while ((reaped = ::waitpid(child, &status, WNOHANG)) == 0) {
    const auto left = std::chrono::ceil<milliseconds>(patience - waited.look(Clock::now()));
    if (left.count() <= 0) {
      ::kill(child, SIGKILL);
      if (pidfd.valid()) base::awaitReadable(pidfd.get(), kKillPatience);
      ::waitpid(child, nullptr, WNOHANG);
      return std::nullopt;
    }
    // Without a free descriptor: looks again.
    const milliseconds wait = std::min(left, base::RunningTime::kBetweenLooks);
    if (!pidfd.valid() || !base::awaitReadable(pidfd.get(), wait)) ::poll(nullptr, 0, 1);
  }
  return reaped == child && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

std::string supervisorPath(const std::string& chosen) {
  if (!chosen.empty()) {
    if (::access(chosen.c_str(), X_OK) == 0) return chosen;
    throw SupervisorLost(
        "the supervisor program " + chosen +
        " (ISOPOOL_SUPERVISOR or PoolOptions) can't be executed: " + std::strerror(errno));
  }
  Dl_info library{};
  std::string tried;
  if (::dladdr(reinterpret_cast<const void*>(&supervisorPath), &library) != 0 &&
      library.dli_fname != nullptr) {
    char resolved[PATH_MAX];
    const char* real = ::realpath(library.dli_fname, resolved);
    std::string folder = folderOf(real != nullptr ? real : library.dli_fname);
    // lib/libisopool.so beside libexec/isopool, also where lib is lib/x86_64-linux-gnu.
    for (int up = 0; up < 2; ++up) {
      folder = folderOf(folder);
      const std::string path = folder + "/libexec/isopool/isopoold";
      if (::access(path.c_str(), X_OK) == 0) return path;
      tried += (tried.empty() ? "" : ", ") + path;
    }
  }
  throw SupervisorLost("no supervisor program found (looked for " + tried +
                       "): set ISOPOOL_SUPERVISOR to the path of isopoold");
}

SupervisorProcess startPrivateSupervisor(const std::string& program,
                                         const std::vector<std::string>& defaults,
                                         std::vector<std::string> environment, bool collectOutput,
                                         std::chrono::milliseconds patience) {
  try {
    auto [ours, theirs] = ipc::ControlSocket::makePair();
    int pipeEnds[2];
    base::checkSystemCall(::pipe2(pipeEnds, O_CLOEXEC), "pipe2");
    base::Fd lifelineRead(pipeEnds[0]);
    base::Fd lifelineWrite = base::awayFromStandardStreams(base::Fd(pipeEnds[1]));
    theirs = moveUp(std::move(theirs));
    lifelineRead = moveUp(std::move(lifelineRead));

    std::vector<std::string> words{program,         "--private",
                                   "--control-fd",  std::to_string(kControlFd),
                                   "--lifeline-fd", std::to_string(kLifelineFd)};
    base::Fd logRead;
    base::Fd logWrite;
    if (collectOutput) {
      std::tie(logRead, logWrite) = makeLogPipe();
      words.emplace_back("--collect-output");
    }
    for (const std::string& each : defaults) words.insert(words.end(), {"--default", each});
    pid_t child = -1;
    const SpawnPlan plan(theirs.get(), lifelineRead.get(), collectOutput ? logWrite.get() : -1);
    const int error =
        plan.run(program, pointersTo(words).data(), pointersTo(environment).data(), child);
    if (error == E2BIG) throw SupervisorLost(tooLarge(environment));
    if (error != 0) throw base::SystemCallError("posix_spawn", program, error);
    ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorStarted);
    // The started process forks the supervisor into the background and exits at once, so that this
    // program gets no child that it does not know.
    const std::optional<int> signal = reapWithin(child, patience);
    if (!signal) {
      throw SupervisorLost("the supervisor " + program + " did not start within " +
                           std::to_string(patience.count()) + " ms and was killed");
    }
    if (*signal != 0) {
      throw SupervisorLost("the supervisor " + program + " was killed by " +
                           base::signalText(*signal) + " while it started");
    }
    return {std::move(ours), std::move(lifelineWrite), child, std::move(logRead)};
  } catch (const base::SystemCallError& error) {
    const std::string obstacle = obstacleToStarts();
    throw SupervisorLost(std::string("the supervisor can't be started: ") + error.what() +
                         (obstacle.empty() ? "" : "; " + obstacle));
  }
}

std::string obstacleToStarts() {
  // Absent until the first process of a new namespace exists, and again when that has ended.
  std::error_code absent;
  const auto own = std::filesystem::read_symlink("/proc/thread-self/ns/pid", absent);
  if (absent) return {};
  const auto next = std::filesystem::read_symlink("/proc/thread-self/ns/pid_for_children", absent);
  if (!absent && next == own) return {};
  return "this thread has called unshare(CLONE_NEWPID), so the next process that it starts is the "
         "first one of a new PID namespace, and the kernel kills all others there when it ends, as "
         "a supervisor's does at once. Make the manager before unshare(), or in a child process "
         "that was forked after it";
}

void reapGuardian(pid_t guardianGroup) {
  if (guardianGroup == 0) return;
  const auto giveUp = Clock::now() + kGuardianPatience;
  for (;;) {
    const pid_t reaped = ::waitpid(-guardianGroup, nullptr, WNOHANG);
    // Usually the guardian is a child of init, not of this process.
    if (reaped > 0 || (reaped == -1 && errno != EINTR) || Clock::now() > giveUp) return;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace isopool::client
