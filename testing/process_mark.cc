// SPDX-License-Identifier: BSD-3-Clause
#include "testing/process_mark.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/fd.h"

namespace isopool::tests {

namespace {

std::string nextVariable() {
  static std::atomic<int> count{0};
  return "ISOPOOL_TEST_MARK=" + std::to_string(::getpid()) + "-" + std::to_string(++count) + "-" +
         std::to_string(Clock::now().time_since_epoch().count());
}

bool hasVariable(const std::filesystem::path& process, const std::string& variable) {
  // Read by rdbuf(), which does not throw if the process dies meanwhile.
  std::ostringstream environment;
  environment << std::ifstream(process / "environ", std::ios::binary).rdbuf();
  return environment.str().find(variable + '\0') != std::string::npos;
}

}  // namespace

ProcessMark::ProcessMark() : variable_(nextVariable()) {}

std::vector<pid_t> ProcessMark::processes() const {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (hasVariable(entry.path(), variable_)) found.push_back(std::stoi(name));
  }
  return found;
}

void ProcessMark::kill() const {
  for (const pid_t pid : processes()) {
    const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd.valid() || !hasVariable("/proc/" + std::to_string(pid), variable_)) continue;
    ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
  }
}

bool ProcessMark::waitUntilNoneIsLeft(std::chrono::milliseconds patience) const {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    const std::vector<pid_t> left = processes();
    if (left.empty()) return true;
    const auto time =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (time.count() <= 0 || !waitUntilDead(left.front(), time)) return processes().empty();
  }
}

bool waitUntilDead(pid_t pid, std::chrono::milliseconds patience) {
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) return true;
  pollfd death{pidfd.get(), POLLIN, 0};
  return ::poll(&death, 1, static_cast<int>(patience.count())) == 1;
}

size_t openDescriptors(pid_t pid) {
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

size_t descriptorsCalled(pid_t pid, const std::string& name) {
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::count_if(begin(entries), end(entries), [&](const auto& entry) {
    std::error_code gone;
    return std::filesystem::read_symlink(entry.path(), gone).string().find(name) !=
           std::string::npos;
  }));
}

}  // namespace isopool::tests
