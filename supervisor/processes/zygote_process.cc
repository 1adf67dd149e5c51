// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/zygote_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>

#include "base/process_environment.h"
#include "base/settings/environment.h"
#include "base/system_call.h"
#include "ipc/thread_variables.h"

namespace isopool::supervisor {

namespace {

constexpr int kControlFd = 3;
constexpr int kLifelineFd = 4;

// malloc's part of worker/process/huge_pages.h: this variable is the only way to enable it.
constexpr std::string_view kTunables = "GLIBC_TUNABLES";
constexpr std::string_view kHugePages = "glibc.malloc.hugetlb";

constexpr std::string_view kNestedPools = "ISOPOOL_NESTED_POOLS";

std::string_view nameOf(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::vector<std::string> zygoteEnvironment(std::vector<std::string> variables) {
  for (const std::string_view name : ipc::kThreadVariables) {
    variables.push_back(std::string(name) + "=1");
  }
  const uint64_t nested = base::settingInEnvironment(kNestedPools).number;
  variables.push_back(std::string(kNestedPools) + "=" +
                      std::to_string(nested == 0 ? 0 : nested - 1));
  const size_t ours = variables.size();
  for (std::string& variable : base::processEnvironment()) {
    const bool replaced =
        std::any_of(variables.begin(), variables.begin() + static_cast<ptrdiff_t>(ours),
                    [&](const std::string& each) { return nameOf(each) == nameOf(variable); });
    if (!replaced) variables.push_back(std::move(variable));
  }
  return variables;
}

// Makes the zygote's malloc use huge pages, unless the user's variable has this tunable. The zygote
// gets the variable's old value as an argument, to restore it for user code.
void askForHugePages(std::vector<std::string>& environment, std::vector<std::string>& words) {
  const auto variable = std::find_if(environment.begin(), environment.end(),
                                     [](const auto& each) { return nameOf(each) == kTunables; });
  const std::string before =
      variable == environment.end() ? "" : variable->substr(kTunables.size() + 1);
  if (before.find(kHugePages) != std::string::npos) return;
  if (variable != environment.end()) environment.erase(variable);
  environment.push_back(std::string(kTunables) + "=" + before + (before.empty() ? "" : ":") +
                        std::string(kHugePages) + "=1");
  words.insert(words.end(), {"--glibc-tunables", before});
}

std::vector<char*> asPointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A copy with a number above those that the child's descriptors get, so that no dup2() overwrites
// the source of another one.
base::Fd outOfTheWay(const base::Fd& descriptor) {
  return base::Fd(base::checkSystemCall(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kLifelineFd + 1),
                                        "fcntl(F_DUPFD_CLOEXEC)"));
}

void check(int error, const char* call, std::string_view subject = {}) {
  if (error != 0) throw base::SystemCallError(call, subject, error);
}

}  // namespace

pid_t spawnZygote(const std::string& executable, const std::vector<std::string>& variables,
                  const base::Fd& control, const base::Fd& lifeline, const base::Fd* output,
                  const InheritedLimits& limits) {
  const base::Fd controlSource = outOfTheWay(control);
  const base::Fd lifelineSource = outOfTheWay(lifeline);
  const base::Fd outputSource = output != nullptr ? outOfTheWay(*output) : base::Fd();
  std::vector<std::string> words{executable,      "--zygote",
                                 "--control-fd",  std::to_string(kControlFd),
                                 "--lifeline-fd", std::to_string(kLifelineFd)};
  std::vector<std::string> environment = zygoteEnvironment(variables);
  askForHugePages(environment, words);
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
  if (outputSource.valid()) {
    ::posix_spawn_file_actions_adddup2(&actions, outputSource.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, outputSource.get(), STDERR_FILENO);
  }
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, executable.c_str(), &actions, &attributes,
                                  asPointers(words).data(), asPointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  check(error, "posix_spawn", executable);

  if (limits.openFiles.rlim_max != 0) ::prlimit(pid, RLIMIT_NOFILE, &limits.openFiles, nullptr);
  if (limits.niceness) {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(pid), *limits.niceness);
    // LimitNICE= of the unit is for the supervisor, not for user code.
    const rlimit noPrecedence{};
    ::prlimit(pid, RLIMIT_NICE, &noPrecedence, nullptr);
  }
  if (!limits.oomScoreAdjustment.empty()) {
    std::ofstream("/proc/" + std::to_string(pid) + "/oom_score_adj") << limits.oomScoreAdjustment;
  }
  return pid;
}

}  // namespace isopool::supervisor
