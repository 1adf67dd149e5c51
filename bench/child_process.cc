// SPDX-License-Identifier: BSD-3-Clause
#include "bench/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "base/parent_death.h"

namespace bench {

ChildProcess::ChildProcess(const std::vector<std::string>& words, const std::string& output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t self = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("can't start " + words[0]);
  if (pid_ > 0) return;
  // The child ends with this process, also if this process is killed.
  isopool::base::endWithParent(self);
  ::dup2(::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDOUT_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

ChildProcess::~ChildProcess() { end(SIGKILL); }

void ChildProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

void ChildProcess::end(int number) {
  if (pid_ <= 0) return;
  signal(number);
  signal(SIGCONT);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool ChildProcess::runs() {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ > 0;
}

}  // namespace bench
