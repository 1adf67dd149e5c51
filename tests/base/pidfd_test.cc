// SPDX-License-Identifier: BSD-3-Clause
#include "base/pidfd.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace isopool::base {
namespace {

Fd pidfdOf(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

pid_t forkChild() {
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (;;) ::pause();
}

TEST(Pidfd, NamesItsProcessUntilThatIsReaped) {
  const pid_t child = forkChild();
  const Fd pidfd = pidfdOf(child);
  EXPECT_EQ(processOf(pidfd), child);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(processOf(pidfd), child);
  EXPECT_FALSE(isReaped(pidfd));
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(processOf(pidfd), 0);
  EXPECT_TRUE(isReaped(pidfd));
  EXPECT_EQ(processOf(Fd(::dup(0))), 0) << "not a pidfd";
  EXPECT_FALSE(isReaped(Fd(::dup(0)))) << "not a pidfd";
}

TEST(Pidfd, ProcessIsUnknownIfNoDescriptorIsFree) {
  const Fd pidfd = pidfdOf(::getpid());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::optional<pid_t> process = processOf(pidfd);
  const int error = errno;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(process) << *process;
  EXPECT_EQ(error, EMFILE);
}

TEST(Pidfd, NamesAProcessByItsNumberInTheOwnProc) {
  const Fd outer = pidfdOf(::getpid());
  const pid_t between = ::fork();
  if (between == 0) {
    constexpr int kNotAllowed = 77;
    if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      ::_exit(kNotAllowed);
    }
    const pid_t first = ::fork();
    if (first == 0) {
      if (::mount("proc", "/proc", "proc", 0, nullptr) != 0) ::_exit(kNotAllowed);
      const bool right = ::getpid() == 1 && processOf(pidfdOf(1)) == 1 && processOf(outer) == 0;
      ::_exit(right ? 0 : 1);
    }
    int status = 0;
    ::waitpid(first, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(between, &status, 0), between);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "a PID namespace and its /proc need a privilege";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace isopool::base
