// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/succession.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/clock.h"
#include "base/close_descriptors.h"
#include "base/log/log.h"
#include "base/parent_death.h"
#include "base/system_call.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"

namespace isopool::supervisor {

namespace {

/// Its value is Inheritance::folders.
constexpr const char* kVariable = "ISOPOOLD_SUCCESSOR";

// The successor's numbers of the descriptors.
constexpr int kSocket = 3;
constexpr int kGuardian = 4;
constexpr int kLock = 5;
constexpr int kNotifications = 6;
constexpr int kBehindAll = 7;

base::Fd taken(int descriptor) {
  if (::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) return {};
  return base::Fd(descriptor);
}

// Only calls that are allowed between fork() and exec() of a process with one thread.
void placeDescriptors(const std::array<std::pair<int, int>, kBehindAll>& numbers) {
  std::array<int, kBehindAll> copies{};
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int source = numbers[i].first;
    // Above those that are overwritten below.
    copies[i] = source < 0 ? -1 : ::fcntl(source, F_DUPFD_CLOEXEC, kBehindAll);
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (copies[i] >= 0) ::dup2(copies[i], numbers[i].second);
  }
}

}  // namespace

std::optional<Inheritance> takeInheritance() {
  const char* folders = std::getenv(kVariable);
  if (folders == nullptr) return std::nullopt;
  Inheritance inheritance;
  inheritance.folders = folders;
  ::unsetenv(kVariable);
  inheritance.socket = taken(kSocket);
  inheritance.guardian = taken(kGuardian);
  inheritance.lock = taken(kLock);
  inheritance.notifications = taken(kNotifications);
  const std::array kept{kSocket, kGuardian, kLock, kNotifications};
  base::closeDescriptorsBut(kept, 3);
  return inheritance;
}

SupervisorProgram SupervisorProgram::ofThisProcess() {
  SupervisorProgram program;
  std::error_code error;
  program.path_ = std::filesystem::read_symlink("/proc/self/exe", error);
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) program.words_.push_back(word);
  return program;
}

pid_t SupervisorProgram::start(const std::vector<base::Fd>& streams, const Inheritance& inheritance,
                               const std::string& watchdog) const {
  std::vector<std::string> words = words_;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::array<std::pair<int, int>, kBehindAll> numbers{
      {{streams.at(0).get(), 0},
       {streams.at(1).get(), 1},
       {streams.at(2).get(), 2},
       {inheritance.socket.get(), kSocket},
       {inheritance.guardian.get(), kGuardian},
       {inheritance.lock.get(), kLock},
       {inheritance.notifications.get(), kNotifications}}};
  const pid_t guardian = ::getpid();
  const pid_t successor = base::checkSystemCall(::fork(), "fork");
  if (successor != 0) return successor;
  base::endWithParent(guardian);
  ::setsid();
  placeDescriptors(numbers);
  ::setenv(kVariable, inheritance.folders.c_str(), 1);
  if (!watchdog.empty()) ::setenv("WATCHDOG_USEC", watchdog.c_str(), 1);
  sigset_t blocked;
  ::sigemptyset(&blocked);
  for (const int signal : {SIGTERM, SIGHUP}) ::sigaddset(&blocked, signal);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  ::execv(path_.c_str(), arguments.data());
  const std::string text = path_ + " can't be executed: " + std::strerror(errno);
  base::log(base::LogLevel::kError, text);
  ipc::ControlSocket(base::Fd(kGuardian)).send(ipc::Failure{text}, {}, base::Milliseconds(0));
  ::_exit(127);
}

}  // namespace isopool::supervisor
