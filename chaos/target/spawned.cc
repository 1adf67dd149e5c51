// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/target/spawned.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace chaos {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

struct Ends {
  std::mutex mutex;
  std::condition_variable came;
  std::set<pid_t> ours;
  std::map<pid_t, int> statuses;
};

// Never destroyed: its thread outlives main().
Ends& ends() {
  static auto* const all = new Ends;
  return *all;
}

void reap() {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) != 0) {
      ::poll(nullptr, 0, 10);  // there is no child at present
      continue;
    }
    // Reaps and records under one lock: a new child may get the number as soon as it is free.
    const std::lock_guard lock(ends().mutex);
    int status = 0;
    ::waitpid(info.si_pid, &status, 0);
    if (ends().ours.erase(info.si_pid) == 0) continue;
    ends().statuses[info.si_pid] = status;
    ends().came.notify_all();
  }
}

}  // namespace

Orphanage& Orphanage::instance() {
  static Orphanage orphanage;
  return orphanage;
}

Orphanage::Orphanage() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::thread(reap).detach();
}

int Orphanage::start(const std::function<int(pid_t&)>& spawn, pid_t& pid) {
  const std::lock_guard lock(ends().mutex);
  const int error = spawn(pid);
  if (error != 0) return error;
  ends().statuses.erase(pid);
  ends().ours.insert(pid);
  return 0;
}

std::optional<int> Orphanage::statusOf(pid_t pid, milliseconds patience) {
  std::unique_lock lock(ends().mutex);
  auto& statuses = ends().statuses;
  if (!ends().came.wait_for(lock, patience, [&] { return statuses.count(pid) != 0; })) return {};
  const int status = statuses[pid];
  statuses.erase(pid);
  return status;
}

Spawned::Spawned(std::vector<std::string> words, std::vector<std::string> variables,
                 const std::string& log) {
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe");
  }
  const isopool::base::Fd childInput(in[0]);
  const isopool::base::Fd childOutput(out[1]);
  input_ = isopool::base::Fd(in[1]);
  output_ = isopool::base::Fd(out[0]);
  for (char** each = environ; *each != nullptr; ++each) variables.emplace_back(*each);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, childInput.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, childOutput.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  // A group of its own: a signal from the terminal ends the attacks, not the processes that are
  // attacked.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = Orphanage::instance().start(
      [&](pid_t& pid) {
        const int failed = ::posix_spawn(&pid, words[0].c_str(), &actions, &attributes,
                                         arguments.data(), environment.data());
        // Before the child can be reaped.
        if (failed == 0)
          pidfd_ = isopool::base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
        return failed;
      },
      pid_);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("can't start " + words[0]);
}

Spawned::~Spawned() {
  if (status_) return;
  if (pidfd_.valid()) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  waitForEnd(milliseconds(5000));
}

bool Spawned::alive() const {
  pollfd ended{pidfd_.get(), POLLIN, 0};
  return !status_ && pidfd_.valid() && ::poll(&ended, 1, 0) == 0;
}

void Spawned::say(const std::string& line) const {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(input_.get(), text.data(), text.size());
}

std::optional<std::string> Spawned::hear(milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    pollfd readable{output_.get(), POLLIN, 0};
    if (left.count() <= 0) return {};
    const int ready = ::poll(&readable, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready != 1) return {};
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
    if (got <= 0) return {};
    unread_.append(buffer.data(), static_cast<size_t>(got));
  }
}

std::optional<int> Spawned::waitForEnd(milliseconds patience) {
  if (!status_) status_ = Orphanage::instance().statusOf(pid_, patience);
  return status_;
}

}  // namespace chaos
