// SPDX-License-Identifier: BSD-3-Clause
#include "tests/supervisor/shared_supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/parent_death.h"
#include "base/unix_address.h"
#include "ipc/control/client_messages.h"
#include "ipc/memory/memory_object.h"

namespace isopool::tests {

namespace {

std::string described(const ipc::Report& report) {
  std::ostringstream text;
  text << "the supervisor is " << report.state << ", has " << report.restarts << " restarts and "
       << report.zygoteRestarts << " of its zygote\n";
  for (const ipc::ReportedWorker& worker : report.workers) {
    text << "worker " << worker.epoch << " of slot " << worker.slot << ", process "
         << worker.processId << ": " << worker.state << " for " << worker.ageMilliseconds
         << " ms, clients " << worker.clients << ", runs " << worker.runningClient << " for "
         << worker.runningMilliseconds << " ms, waiting " << worker.waitingClients << ", lent "
         << worker.lentBytes << " bytes, zombies " << worker.zombieBytes << " bytes\n";
  }
  for (const ipc::ReportedSlot& slot : report.slots) {
    text << "slot " << slot.slot << ": " << slot.restarts << " restarts, " << slot.lastDeath << " "
         << slot.lastDeathMillisecondsAgo << " ms ago\n";
  }
  for (const ipc::ReportedClient& client : report.clients) {
    text << "client " << client.number << ", process " << client.processId << " of "
         << client.program << ": " << client.state << ", queued " << client.queuedCalls
         << ", running " << client.runningCalls << ", completed " << client.completedCalls << "\n";
  }
  return text.str();
}

}  // namespace

SharedSupervisor::SharedSupervisor(std::vector<std::string> flags, const std::string& settings) {
  address_ = folder() + "/socket";
  setMode("");
  words_ = {ISOPOOLD, "--listen", address_, "--log-level", "info"};
#ifdef PLAIN_WORKER
  words_.insert(words_.end(), {"--worker", PLAIN_WORKER});
#endif
  if (!settings.empty()) {
    writeSettings(settings);
    words_.insert(words_.end(), {"--config", folder() + "/settings.toml"});
  }
  words_.insert(words_.end(), flags.begin(), flags.end());
  start();
}

void SharedSupervisor::start() {
  spawn([] {});
  const auto deadline = Clock::now() + milliseconds(5000);
  while (!connect().valid() && Clock::now() < deadline) ::poll(nullptr, 0, 2);
}

pid_t SharedSupervisor::startNext() {
  const pid_t former = std::exchange(pid_, -1);
  start();
  return former;
}

void SharedSupervisor::usePrograms(const std::string& isopoold, const std::string& worker) {
  words_.front() = isopoold;
  words_.insert(words_.end(), {"--worker", worker});
}

void SharedSupervisor::startAskedToEnd() {
  spawn([] {
    sigset_t term;
    ::sigemptyset(&term);
    ::sigaddset(&term, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &term, nullptr);
    ::raise(SIGTERM);
  });
}

void SharedSupervisor::spawn(const std::function<void()>& inChild) {
  std::vector<std::string> variables{mark_.variable(), "PLAIN_WORKER_MODE=" + folder() + "/mode"};
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  std::vector<char*> arguments;
  for (std::string& word : words_) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  const std::string log = folder() + "/log";
  const pid_t self = ::getpid();
  pid_ = ::fork();
  ASSERT_GE(pid_, 0);
  if (pid_ == 0) {
    // The kernel kills the supervisor if the test is killed.
    base::endWithParent(self);
    ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDERR_FILENO);
    inChild();
    ::execve(arguments.front(), arguments.data(), environment.data());
    ::_exit(127);
  }
}

SharedSupervisor::~SharedSupervisor() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  EXPECT_TRUE(mark_.waitUntilNoneIsLeft(milliseconds(2000))) << "processes are left over";
}

ipc::ControlSocket SharedSupervisor::connect() const {
  const auto name = base::UnixAddress::ofPath(address_).value();
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.get(), name.get(), name.bytes()) != 0) return {};
  return ipc::ControlSocket(std::move(socket));
}

std::unique_ptr<ControlClient> SharedSupervisor::attach(const std::string& program) const {
  auto client = std::make_unique<ControlClient>(connect());
  client->begin(program);
  return client;
}

std::unique_ptr<ControlClient> SharedSupervisor::attachWithPool(uint32_t workers,
                                                                const std::string& program) const {
  auto client = attach(program);
  client->openPool(1, workers);
  return client;
}

ipc::ControlSocket SharedSupervisor::connectOperator() const {
  ipc::ControlSocket control = connect();
  if (!control.valid()) return control;
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.role = static_cast<uint32_t>(ipc::ClientRole::kOperator);
  control.send(hello, {pidfd.get()});
  return control;
}

ipc::Report SharedSupervisor::reportOn(ipc::ControlSocket& control) {
  return ask<ipc::Report>(control, ipc::RequestReport{1});
}

template <typename Answer, typename Request>
Answer SharedSupervisor::ask(ipc::ControlSocket& control, const Request& request) {
  if (!control.valid()) return {};
  control.send(request);
  while (control.waitReadable(milliseconds(2000))) {
    const bool gone = control.receive() == ipc::ReceiveResult::kPeerGone;
    while (std::optional<ipc::Frame> frame = control.next()) {
      if (frame->type == Answer::kType) return ipc::decodeMessage<Answer>(*frame);
    }
    if (gone) break;
  }
  ADD_FAILURE() << "no answer";
  return {};
}

ipc::Report SharedSupervisor::report() const {
  ipc::ControlSocket control = connectOperator();
  return reportOn(control);
}

ipc::ActionDone SharedSupervisor::act(ipc::Action action, uint64_t target, const std::string& group,
                                      milliseconds time) const {
  constexpr uint64_t kToken = 7;
  ipc::ControlSocket control = connectOperator();
  const auto outcome = ask<ipc::ActionDone>(
      control, ipc::RequestAction{kToken, static_cast<uint32_t>(action), target, group,
                                  static_cast<uint64_t>(time.count())});
  EXPECT_EQ(outcome.token, kToken);
  return outcome;
}

void SharedSupervisor::request(ipc::Action action, uint64_t target) const {
  ipc::ControlSocket control = connectOperator();
  if (!control.valid()) return;
  control.send(ipc::RequestAction{1, static_cast<uint32_t>(action), target, ""});
  ipc::ReceiveResult received = ipc::ReceiveResult::kOk;
  while (received != ipc::ReceiveResult::kPeerGone && control.waitReadable(milliseconds(2000))) {
    received = control.receive();
    while (const std::optional<ipc::Frame> frame = control.next()) {
      if (frame->type == ipc::MessageType::kActionDone) return;
    }
  }
}

testing::AssertionResult SharedSupervisor::waitForReport(
    const std::function<bool(const ipc::Report&)>& condition, milliseconds patience) const {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    const ipc::Report last = report();
    if (condition(last)) return testing::AssertionSuccess();
    if (Clock::now() > deadline) return testing::AssertionFailure() << described(last);
    ::poll(nullptr, 0, 5);
  }
}

void SharedSupervisor::setMode(const std::string& mode) const {
  // Replaces the file in one step: a process may be reading it.
  std::ofstream(folder() + "/mode.new") << mode;
  std::filesystem::rename(folder() + "/mode.new", folder() + "/mode");
}

void SharedSupervisor::writeSettings(const std::string& settings) const {
  std::ofstream(folder() + "/settings.toml") << settings;
}

void SharedSupervisor::signal(int number) const { ::kill(pid_, number); }

std::optional<int> SharedSupervisor::waitForEnd(milliseconds patience) {
  const auto code = waitForEndOf(pid_, patience);
  if (code) pid_ = -1;
  return code;
}

std::string SharedSupervisor::log() const {
  std::ostringstream text;
  text << std::ifstream(folder() + "/log").rdbuf();
  return text.str();
}

std::optional<int> waitForEndOf(pid_t guardian, milliseconds patience) {
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, guardian, 0)));
  pollfd ended{pidfd.get(), POLLIN, 0};
  if (::poll(&ended, 1, static_cast<int>(patience.count())) != 1) return std::nullopt;
  int status = 0;
  ::waitpid(guardian, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

base::Fd packageOf(char letter, size_t pages) {
  base::Fd object = ipc::createMemoryObject("test", pages * ipc::kPageBytes);
  const std::string page(ipc::kPageBytes, letter);
  for (size_t i = 0; i < pages; ++i) {
    EXPECT_EQ(
        ::pwrite(object.get(), page.data(), page.size(), static_cast<off_t>(i * ipc::kPageBytes)),
        static_cast<ssize_t>(page.size()));
  }
  ipc::sealMemoryObject(object, ipc::Seal::kReadOnly);
  return object;
}

const ipc::ReportedClient* clientNamed(const ipc::Report& report, const std::string& program) {
  for (const auto& client : report.clients) {
    if (client.program == program) return &client;
  }
  return nullptr;
}

}  // namespace isopool::tests
