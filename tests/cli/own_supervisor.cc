// SPDX-License-Identifier: BSD-3-Clause
#include "tests/cli/own_supervisor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/fd.h"
#include "base/parent_death.h"
#include "base/system_call.h"
#include "base/unix_address.h"
#include "cli/supervisor_link.h"

namespace isopool::tests {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience(10000);

/// The socket on which the supervisor reports that it serves, as it does to systemd.
class ReadinessSocket {
 public:
  explicit ReadinessSocket(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const auto name = base::UnixAddress::ofPath(path).value();
    base::checkSystemCall(::bind(socket_.get(), name.get(), name.bytes()), "bind", path);
  }

  bool waitUntilReady() {
    pollfd readable{socket_.get(), POLLIN, 0};
    while (::poll(&readable, 1, static_cast<int>(kPatience.count())) == 1) {
      std::array<char, 4096> text;
      const ssize_t bytes = ::recv(socket_.get(), text.data(), text.size(), 0);
      if (bytes > 0 && std::string_view(text.data(), static_cast<size_t>(bytes)).find("READY=1") !=
                           std::string_view::npos) {
        return true;
      }
    }
    return false;
  }

 private:
  base::Fd socket_;
};

std::vector<char*> pointersTo(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

OwnSupervisor::OwnSupervisor(std::vector<std::string> flags, std::string address)
    : address_(address.empty() ? folder_.path() + "/isopoold.sock" : std::move(address)) {
  const std::string readiness = folder_.path() + "/ready.sock";
  ReadinessSocket ready(readiness);
  std::vector<std::string> words{ISOPOOLD, "--listen", address_, "--worker", PLAIN_WORKER};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<std::string> variables{mark_.variable(), "NOTIFY_SOCKET=" + readiness,
                                     "ISOPOOL_LOG=off"};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  const std::vector<char*> arguments = pointersTo(words);
  const std::vector<char*> environment = pointersTo(variables);
  const pid_t self = ::getpid();
  guardian_ = ::fork();
  if (guardian_ == 0) {
    // This process becomes the guardian, whose death ends all processes of the supervisor.
    base::endWithParent(self);
    ::execve(ISOPOOLD, arguments.data(), environment.data());
    ::_exit(127);
  }
  base::checkSystemCall(guardian_, "fork");
  if (!ready.waitUntilReady()) throw std::runtime_error("isopoold does not serve");
  processId_ = report().processId;
}

OwnSupervisor::~OwnSupervisor() {
  ::kill(guardian_, SIGKILL);
  ::waitpid(guardian_, nullptr, 0);
  EXPECT_TRUE(mark_.waitUntilNoneIsLeft(milliseconds(5000))) << "processes are left over";
}

ipc::Report OwnSupervisor::report() const { return cli::SupervisorLink(address_).ask(); }

ipc::Report OwnSupervisor::waitFor(const std::function<bool(const ipc::Report&)>& condition) const {
  cli::SupervisorLink link(address_);
  const auto deadline = Clock::now() + kPatience;
  ipc::Report report = link.ask();
  while (!condition(report) && Clock::now() < deadline) report = link.ask();
  EXPECT_TRUE(condition(report)) << "the supervisor did not reach that state";
  return report;
}

}  // namespace isopool::tests
