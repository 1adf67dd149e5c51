// SPDX-License-Identifier: BSD-3-Clause
// Linked into tests that kill processes, where it replaces the C library's kill(). A test that does
// not have a process id may pass 0 or -1: that would kill the test's own process group, together
// with the program that started the test, or every process of the machine.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

extern "C" int kill(pid_t pid, int signal) noexcept {
  if (pid == 0 || pid == -1) {
    std::fprintf(stderr, "kill(%d, %d): not a process id; the test has a bug\n", pid, signal);
    std::abort();
  }
  return static_cast<int>(::syscall(SYS_kill, pid, signal));
}
