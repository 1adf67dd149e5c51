// SPDX-License-Identifier: BSD-3-Clause
#include "base/close_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>

namespace isopool::base {
namespace {

// Container filters that are older than close_range() refuse it like this.
bool refuseCloseRange() {
  sock_filter program[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_close_range},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog filter{4, program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

int exitStatusOfChild(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool isOpen(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

// Returns 0, or a bit for each descriptor in the wrong state.
int closesAllButTheKept() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  constexpr std::array open{70, 71, 72, 500, 501};
  for (const int fd : open) ::dup2(null, fd);
  constexpr std::array kept{501, 71};
  closeDescriptorsBut(kept, 3);
  int wrong = 0;
  for (size_t i = 0; i < open.size(); ++i) {
    const bool isKept = open[i] == 71 || open[i] == 501;
    if (isOpen(open[i]) != isKept) wrong |= 1 << i;
  }
  if (isOpen(null)) wrong |= 32;
  if (!isOpen(2)) wrong |= 64;
  return wrong;
}

TEST(CloseDescriptors, ClosesAllButTheKept) {
  EXPECT_EQ(exitStatusOfChild(closesAllButTheKept), 0);
}

TEST(CloseDescriptors, ClosesAllButTheKeptWhereAFilterRefusesTheCall) {
  EXPECT_EQ(exitStatusOfChild([] {
              if (!refuseCloseRange()) return 128;
              if (::close_range(1000, 1001, 0) != -1) return 127;
              return closesAllButTheKept();
            }),
            0);
}

}  // namespace
}  // namespace isopool::base
