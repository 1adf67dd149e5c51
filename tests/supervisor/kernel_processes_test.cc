// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/kernel_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "base/procfs.h"
#include "base/system_call.h"

namespace isopool::supervisor {
namespace {

/// A chain of processes, each the child of the one before. They share the memory of this process:
/// copies of copies would become slower with each.
class Chain {
 public:
  explicit Chain(size_t length) : stacks_(length * kStackBytes), left_(length) {
    base::checkSystemCall(::pipe2(report_, O_CLOEXEC), "pipe2");
    base::checkSystemCall(::pipe2(life_, O_CLOEXEC), "pipe2");
    first_ = next();
    ::close(report_[1]);
    if (::read(report_[0], &last_, sizeof last_) != sizeof last_) last_ = -1;
  }
  ~Chain() {
    for (const int end : {report_[0], life_[0], life_[1]}) ::close(end);
    ::waitpid(first_, nullptr, 0);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  pid_t last() const { return last_; }

 private:
  static constexpr size_t kStackBytes = 16 * 1024;

  pid_t next() {
    char* const stack = stacks_.data() + left_-- * kStackBytes;
    return ::clone(run, stack, CLONE_VM | SIGCHLD, this);
  }

  // Each process of the chain has its own descriptors.
  static int run(void* argument) {
    auto& chain = *static_cast<Chain*>(argument);
    ::close(chain.life_[1]);
    const pid_t child = chain.left_ > 0 ? chain.next() : 0;
    if (child == 0) {
      const pid_t self = ::getpid();
      (void)!::write(chain.report_[1], &self, sizeof self);
    }
    ::close(chain.report_[1]);
    char byte = 0;
    (void)!::read(chain.life_[0], &byte, 1);
    if (child > 0) ::waitpid(child, nullptr, 0);
    ::_exit(0);
  }

  std::vector<char> stacks_;
  size_t left_;
  int report_[2];
  int life_[2];
  pid_t first_ = 0;
  pid_t last_ = 0;
};

TEST(KernelProcesses, AreDescendantsHoweverManyLieBetween) {
  KernelProcesses processes;
  for (const size_t length : {1, 2, 1001}) {
    const Chain chain(length);
    ASSERT_GT(chain.last(), 0) << length;
    EXPECT_TRUE(processes.isDescendant(chain.last())) << length;
  }
}

TEST(KernelProcesses, AreNoDescendantsIfTheyAreAncestors) {
  KernelProcesses processes;
  for (const pid_t pid : {0, 1, ::getppid()}) EXPECT_FALSE(processes.isDescendant(pid)) << pid;
}

TEST(KernelProcesses, CountAsDescendantsIfTheirParentIsUnknown) {
  KernelProcesses processes;
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  EXPECT_TRUE(processes.isDescendant(gone));
}

// /proc is mounted with hidepid=, so the child sees only processes of its own user. A process of
// another user cannot be its descendant.
TEST(KernelProcesses, AreNoDescendantsIfTheyAreAnotherUsersAndHidden) {
  constexpr int kNoNamespaces = 2;
  constexpr uid_t kNobody = 65534;
  const pid_t parent = ::getpid();
  const pid_t hidden = ::fork();
  if (hidden == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("proc", "/proc", "proc", 0, "hidepid=2") != 0 || ::setuid(kNobody) != 0) {
      ::_exit(kNoNamespaces);
    }
    ::_exit(KernelProcesses().isDescendant(parent) ? 1 : 0);
  }
  int status = 0;
  ::waitpid(hidden, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNamespaces) GTEST_SKIP() << "this user may not hide processes";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A worker in a group of its own that starts a process, in its group or with a session of its own,
// whose parent ends. Writes the number of the last process and waits.
pid_t startWorker(int report, bool ownSession) {
  const pid_t worker = ::fork();
  if (worker != 0) return worker;
  ::setpgid(0, 0);
  const pid_t middle = ::fork();
  if (middle == 0) {
    if (ownSession) ::setsid();
    const pid_t last = ::fork();
    if (last != 0) ::_exit(0);
    const pid_t self = ::getpid();
    (void)!::write(report, &self, sizeof self);
    for (;;) ::pause();
  }
  for (;;) ::pause();
}

TEST(KernelProcesses, TreeOfAWorkerHasOrphansOfItsGroup) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  for (const bool ownSession : {false, true}) {
    int report[2];
    base::checkSystemCall(::pipe(report), "pipe");
    const pid_t worker = startWorker(report[1], ownSession);
    pid_t last = 0;
    ASSERT_EQ(::read(report[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    // The parent has ended when the process is ours.
    while (base::statusOf(last).parent != ::getpid()) ::usleep(1000);
    const Processes::Tree tree = KernelProcesses().treeOf(worker);
    EXPECT_EQ(tree.processes, ownSession ? 0u : 1u);
    EXPECT_EQ(tree.zombies, 1u) << "the parent";
    EXPECT_EQ(tree.bytes > 0, !ownSession);
    EXPECT_GT(tree.workerBytes, 0u);
    EXPECT_EQ(tree.limit, base::privateMemoryLimit(::getpid()));
    for (const pid_t pid : {worker, last}) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    for (const int end : report) ::close(end);
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

}  // namespace
}  // namespace isopool::supervisor
