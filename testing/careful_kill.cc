// SPDX-License-Identifier: BSD-3-Clause
// Linked into tests that kill processes, where it takes the place of the C library's kill(). A
// number that was not known is 0 or -1 there: the test's own process group, with whoever started
// it, or every process of the machine.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

extern "C" int kill(pid_t pid, int signal) noexcept {
  if (pid == 0 || pid == -1) {
    std::fprintf(stderr, "kill(%d, %d): the test does not know whom to kill\n", pid, signal);
    std::abort();
  }
  return static_cast<int>(::syscall(SYS_kill, pid, signal));
}
