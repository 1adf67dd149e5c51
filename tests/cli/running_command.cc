// SPDX-License-Identifier: BSD-3-Clause
#include "tests/cli/running_command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/parent_death.h"
#include "base/system_call.h"
#include "tests/cli/own_supervisor.h"

namespace isopool::tests {

namespace {

using Clock = std::chrono::steady_clock;

constexpr milliseconds kPatience(10000);

std::vector<char*> pointersTo(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The first variable of a name wins.
std::vector<std::string> environmentWith(std::vector<std::string> variables) {
  for (const char* fixed : {"ISOPOOL_SOCKET=", "NO_COLOR=", "LC_ALL=C.UTF-8", "TERM=xterm"}) {
    variables.emplace_back(fixed);
  }
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return variables;
}

std::vector<std::string> commandLine(std::vector<std::string> arguments,
                                     const std::string& program = ISOPOOL) {
  arguments.insert(arguments.begin(), program);
  return arguments;
}

int left(Clock::time_point deadline) {
  const auto time = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<int64_t>(time.count(), 0));
}

// Reads the available text; empty at the end. A terminal returns EIO when no process has it open.
std::string readFrom(const base::Fd& fd) {
  std::array<char, 65536> bytes;
  const ssize_t got = ::read(fd.get(), bytes.data(), bytes.size());
  return {bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))};
}

bool waitUntilEnded(pid_t processId, Clock::time_point deadline) {
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, processId, 0)));
  pollfd end{pidfd.get(), POLLIN, 0};
  return ::poll(&end, 1, left(deadline)) == 1;
}

int exitCodeOf(pid_t& processId, bool ended) {
  if (processId <= 0) return -1;  // never began
  if (!ended) ::kill(processId, SIGKILL);
  int status = 0;
  ::waitpid(std::exchange(processId, -1), &status, 0);
  return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

pid_t spawn(std::vector<std::string> words, std::vector<std::string> variables, int input,
            int output, int errors) {
  const std::vector<char*> arguments = pointersTo(words);
  const std::vector<char*> environment = pointersTo(variables);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  pid_t processId = -1;
  EXPECT_EQ(::posix_spawnp(&processId, arguments[0], &actions, nullptr, arguments.data(),
                           environment.data()),
            0);
  ::posix_spawn_file_actions_destroy(&actions);
  return processId;
}

std::pair<base::Fd, base::Fd> makePipe() {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  return {base::Fd(ends[0]), base::Fd(ends[1])};
}

}  // namespace

RunningCommand::RunningCommand(std::vector<std::string> arguments,
                               std::vector<std::string> variables, const std::string& program)
    : startedAt_(Clock::now()) {
  auto [output, outputEnd] = makePipe();
  auto [errors, errorsEnd] = makePipe();
  const base::Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  processId_ =
      spawn(commandLine(std::move(arguments), program), environmentWith(std::move(variables)),
            nothing.get(), outputEnd.get(), errorsEnd.get());
  output_ = std::move(output);
  errors_ = std::move(errors);
}

RunningCommand::~RunningCommand() {
  if (processId_ > 0) exitCodeOf(processId_, false);
}

bool RunningCommand::readSome(Clock::time_point deadline) {
  std::array<pollfd, 2> readable{{{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}}};
  if (::poll(readable.data(), readable.size(), left(deadline)) <= 0) return false;
  const auto read = [](base::Fd& fd, const pollfd& state, std::string& text) {
    if (state.revents == 0) return;
    const std::string more = readFrom(fd);
    if (more.empty()) fd.close();
    text += more;
  };
  read(output_, readable[0], outputText_);
  read(errors_, readable[1], errorText_);
  return true;
}

std::optional<std::string> RunningCommand::nextLine() {
  const auto deadline = Clock::now() + kPatience;
  size_t end;
  while ((end = outputText_.find('\n')) == std::string::npos) {
    if (!output_.valid() || !readSome(deadline)) return std::nullopt;
  }
  std::string line = outputText_.substr(0, end);
  outputText_.erase(0, end + 1);
  return line;
}

void RunningCommand::signal(int number) const { ::kill(processId_, number); }

CommandOutcome RunningCommand::finish() {
  const auto deadline = Clock::now() + kPatience;
  while ((output_.valid() || errors_.valid()) && readSome(deadline)) {
  }
  const bool ended = waitUntilEnded(processId_, deadline);
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - startedAt_);
  return {exitCodeOf(processId_, ended), outputText_, errorText_, took};
}

CommandOutcome runCommand(std::vector<std::string> arguments, std::vector<std::string> variables) {
  return RunningCommand(std::move(arguments), std::move(variables)).finish();
}

CommandOutcome runCommandAs(uid_t user, std::vector<std::string> arguments) {
  const TemporaryFolder folder;
  const std::string copy = folder.path() + "/isopool";
  std::filesystem::copy_file(ISOPOOL, copy);
  EXPECT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  EXPECT_EQ(::chmod(copy.c_str(), 0755), 0);
  // The command inherits the effective user. The saved user id allows the test to switch back.
  EXPECT_EQ(::setresuid(user, user, 0), 0);
  CommandOutcome outcome = RunningCommand(std::move(arguments), {}, copy).finish();
  EXPECT_EQ(::setresuid(0, 0, 0), 0);
  return outcome;
}

CommandOnTerminal::CommandOnTerminal(std::vector<std::string> arguments,
                                     std::vector<std::string> variables) {
  std::vector<std::string> words = commandLine(std::move(arguments));
  std::vector<std::string> allVariables = environmentWith(std::move(variables));
  const std::vector<char*> argumentPointers = pointersTo(words);
  const std::vector<char*> environment = pointersTo(allVariables);
  int ours = -1;
  int theirs = -1;
  const winsize size{24, 80, 0, 0};
  EXPECT_EQ(::openpty(&ours, &theirs, nullptr, nullptr, &size), 0);
  ours_ = base::Fd(ours);
  theirs_ = base::Fd(theirs);
  ::fcntl(ours, F_SETFD, FD_CLOEXEC);
  ::tcgetattr(theirs, &before_);
  const pid_t self = ::getpid();
  processId_ = ::fork();
  if (processId_ == 0) {
    base::endWithParent(self);
    ::login_tty(theirs);
    ::execve(argumentPointers[0], argumentPointers.data(), environment.data());
    ::_exit(127);
  }
  base::checkSystemCall(processId_, "fork");
}

CommandOnTerminal::~CommandOnTerminal() {
  if (processId_ > 0) exitCodeOf(processId_, false);
}

void CommandOnTerminal::type(const std::string& keys) {
  ASSERT_EQ(::write(ours_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

void CommandOnTerminal::resize(unsigned short rows, unsigned short columns) {
  const winsize size{rows, columns, 0, 0};
  ASSERT_EQ(::ioctl(ours_.get(), TIOCSWINSZ, &size), 0);
}

void CommandOnTerminal::signal(int number) const { ::kill(processId_, number); }

bool CommandOnTerminal::readSome(Clock::time_point deadline) {
  pollfd readable{ours_.get(), POLLIN, 0};
  if (::poll(&readable, 1, left(deadline)) <= 0) return false;
  text_ += readFrom(ours_);
  return true;
}

bool CommandOnTerminal::waitForText(const std::string& text) {
  const auto deadline = Clock::now() + kPatience;
  while (text_.find(text) == std::string::npos) {
    if (!readSome(deadline)) return false;
  }
  return true;
}

bool CommandOnTerminal::waitUntilStopped() {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(processId_), &info, WSTOPPED | WEXITED | WNOWAIT) == 0 &&
         info.si_code == CLD_STOPPED;
}

int CommandOnTerminal::finish() {
  const bool ended = waitUntilEnded(processId_, Clock::now() + kPatience);
  // All output of the command is in the terminal by now.
  while (readSome(Clock::now())) {
  }
  return exitCodeOf(processId_, ended);
}

bool CommandOnTerminal::terminalIsAsBefore() const {
  termios now{};
  ::tcgetattr(theirs_.get(), &now);
  return now.c_iflag == before_.c_iflag && now.c_oflag == before_.c_oflag &&
         now.c_cflag == before_.c_cflag && now.c_lflag == before_.c_lflag &&
         std::equal(std::begin(now.c_cc), std::end(now.c_cc), std::begin(before_.c_cc));
}

std::string inJson(const std::string& json, const std::string& expression) {
  auto [input, inputEnd] = makePipe();
  auto [output, outputEnd] = makePipe();
  const std::string program =
      "import json, sys\nvalue = json.load(sys.stdin)\nprint(eval(sys.argv[1]), end='')";
  pid_t processId = spawn({PYTHON, "-c", program, expression}, environmentWith({}), input.get(),
                          outputEnd.get(), STDERR_FILENO);
  outputEnd.close();
  input.close();
  EXPECT_EQ(::write(inputEnd.get(), json.data(), json.size()), static_cast<ssize_t>(json.size()));
  inputEnd.close();
  std::string result;
  for (std::string more; !(more = readFrom(output)).empty();) result += more;
  EXPECT_EQ(exitCodeOf(processId, waitUntilEnded(processId, Clock::now() + kPatience)), 0) << json;
  return result;
}

}  // namespace isopool::tests
