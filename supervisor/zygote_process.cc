// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/zygote_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string_view>
#include <vector>

#include "ipc/system_call.h"

namespace isopool::supervisor {

namespace {

constexpr int kControlFd = 3;
constexpr int kLifelineFd = 4;

// A math library that starts threads at import makes every later fork a gamble.
constexpr std::array<std::string_view, 3> kOneThread{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                                     "MKL_NUM_THREADS"};

std::vector<std::string> zygoteEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    bool replaced = false;
    for (const std::string_view name : kOneThread) {
      replaced = replaced || text.substr(0, text.find('=')) == name;
    }
    if (!replaced) variables.emplace_back(text);
  }
  for (const std::string_view name : kOneThread) variables.push_back(std::string(name) + "=1");
  return variables;
}

std::vector<char*> asPointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Above the numbers that the child's descriptors get, so that no dup2 overwrites another's source.
ipc::Fd outOfTheWay(const ipc::Fd& descriptor) {
  return ipc::Fd(ipc::checkSystemCall(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kLifelineFd + 1),
                                      "fcntl(F_DUPFD_CLOEXEC)"));
}

void check(int error, const char* call, std::string_view subject = {}) {
  if (error != 0) throw ipc::SystemCallError(call, subject, error);
}

}  // namespace

pid_t spawnZygote(const std::string& executable, const ipc::Fd& control, const ipc::Fd& lifeline,
                  const InheritedLimits& limits) {
  const ipc::Fd controlSource = outOfTheWay(control);
  const ipc::Fd lifelineSource = outOfTheWay(lifeline);
  std::vector<std::string> words{executable,      "--zygote",
                                 "--control-fd",  std::to_string(kControlFd),
                                 "--lifeline-fd", std::to_string(kLifelineFd)};
  std::vector<std::string> variables = zygoteEnvironment();
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);

  posix_spawn_file_actions_t actions;
  check(::posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
  posix_spawnattr_t attributes;
  check(::posix_spawnattr_init(&attributes), "posix_spawnattr_init");
  ::posix_spawn_file_actions_adddup2(&actions, controlSource.get(), kControlFd);
  ::posix_spawn_file_actions_adddup2(&actions, lifelineSource.get(), kLifelineFd);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, executable.c_str(), &actions, &attributes,
                                  asPointers(words).data(), asPointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  check(error, "posix_spawn", executable);

  if (limits.openFiles.rlim_max != 0) ::prlimit(pid, RLIMIT_NOFILE, &limits.openFiles, nullptr);
  if (!limits.oomScoreAdjustment.empty()) {
    std::ofstream("/proc/" + std::to_string(pid) + "/oom_score_adj") << limits.oomScoreAdjustment;
  }
  return pid;
}

}  // namespace isopool::supervisor
