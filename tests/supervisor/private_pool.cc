// SPDX-License-Identifier: BSD-3-Clause
#include "tests/supervisor/private_pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ipc/channel/futex.h"
#include "ipc/memory/memory_object.h"

namespace isopool::tests {

namespace {

base::Fd above(int number, base::Fd descriptor) {
  return base::Fd(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, number));
}

}  // namespace

std::string PrivatePool::modeFileOf(const ProcessMark& mark) {
  return std::filesystem::temp_directory_path() /
         ("isopool-plain-worker-" + mark.variable().substr(mark.variable().find('=') + 1));
}

PrivatePool::PrivatePool(std::vector<std::string> flags, const std::string& mode) {
  modeFile_ = modeFileOf(mark_);
  setMode(mode);
  spawn(std::move(flags));
}

PrivatePool::~PrivatePool() {
  closeControl();
  lifeline_.close();
  EXPECT_TRUE(mark_.waitUntilNoneIsLeft(milliseconds(2000))) << "processes are left over";
  std::filesystem::remove(modeFile_);
}

void PrivatePool::spawn(std::vector<std::string> flags) {
  auto [ours, theirs] = ipc::ControlSocket::makePair();
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  setControl(ipc::ControlSocket(std::move(ours)));
  lifeline_ = base::Fd(pipe[1]);
  const base::Fd control = above(10, std::move(theirs));
  const base::Fd lifelineEnd = above(10, base::Fd(pipe[0]));

  std::vector<std::string> words{ISOPOOLD, "--private", "--worker", PLAIN_WORKER};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<std::string> variables{mark_.variable(), "PLAIN_WORKER_MODE=" + modeFile_};
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, control.get(), 3);
  ::posix_spawn_file_actions_adddup2(&actions, lifelineEnd.get(), 4);
  pid_t pid = -1;
  ASSERT_EQ(::posix_spawn(&pid, ISOPOOLD, &actions, nullptr, arguments.data(), environment.data()),
            0);
  ::posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status)) << "a signal killed isopoold";
}

void PrivatePool::setMode(const std::string& mode) {
  // Replaces the file in one step: a process may be reading it.
  std::ofstream(modeFile_ + ".new") << mode;
  std::filesystem::rename(modeFile_ + ".new", modeFile_);
}

}  // namespace isopool::tests
