// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/supervisor_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/standard_streams.h"
#include "base/system_call.h"
#include "ipc/control/frame.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

extern char** environ;

namespace isopool::client {

namespace {

constexpr int kControlFd = 3;
constexpr int kLifelineFd = 4;
// Descriptors that posix_spawn() copies to 3 and 4 must not have these numbers themselves.
constexpr int kAboveTheStandardOnes = 10;
constexpr std::chrono::seconds kGuardianPatience(5);

std::string folderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

base::Fd moveUp(base::Fd fd) {
  return base::Fd(base::checkSystemCall(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kAboveTheStandardOnes),
                                        "fcntl(F_DUPFD_CLOEXEC)", fd.get()));
}

/// The file actions and attributes for posix_spawn(); the destructor frees them.
class SpawnPlan {
 public:
  SpawnPlan(int control, int lifeline) {
    ::posix_spawn_file_actions_init(&actions_);
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

  int run(const std::string& path, char* const* arguments, pid_t& child) const {
    return ::posix_spawn(&child, path.c_str(), &actions_, &attributes_, arguments, environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

std::string supervisorPath() {
  if (const char* chosen = std::getenv("ISOPOOL_SUPERVISOR"); chosen != nullptr && *chosen != 0) {
    if (::access(chosen, X_OK) == 0) return chosen;
    throw SupervisorLost(std::string("ISOPOOL_SUPERVISOR=") + chosen +
                         " is not an executable program: " + std::strerror(errno));
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

SupervisorProcess startPrivateSupervisor() {
  const std::string path = supervisorPath();
  try {
    auto [ours, theirs] = ipc::ControlSocket::makePair();
    int pipeEnds[2];
    base::checkSystemCall(::pipe2(pipeEnds, O_CLOEXEC), "pipe2");
    base::Fd lifelineRead(pipeEnds[0]);
    base::Fd lifelineWrite = base::awayFromStandardStreams(base::Fd(pipeEnds[1]));
    theirs = moveUp(std::move(theirs));
    lifelineRead = moveUp(std::move(lifelineRead));

    std::string words[] = {path,
                           "--private",
                           "--control-fd",
                           std::to_string(kControlFd),
                           "--lifeline-fd",
                           std::to_string(kLifelineFd)};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                         words[4].data(), words[5].data(), nullptr};
    pid_t child = -1;
    const SpawnPlan plan(theirs.get(), lifelineRead.get());
    const int error = plan.run(path, arguments, child);
    if (error != 0) throw base::SystemCallError("posix_spawn", path, error);
    ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorStarted);
    // The started process forks the supervisor into the background and exits at once, so that this
    // program gets no child that it does not know. If the program reaps all its children elsewhere,
    // waitpid() fails, which does no harm.
    int status = 0;
    while (::waitpid(child, &status, 0) == -1 && errno == EINTR) {
    }
    return {std::move(ours), std::move(lifelineWrite), child};
  } catch (const base::SystemCallError& error) {
    throw SupervisorLost(std::string("the supervisor can't be started: ") + error.what());
  }
}

void reapGuardian(pid_t guardianGroup) {
  using Clock = std::chrono::steady_clock;
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
