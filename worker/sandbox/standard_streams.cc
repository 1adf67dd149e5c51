// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/standard_streams.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/fd.h"
#include "base/system_call.h"
#include "worker/sandbox/landlock_interface.h"

namespace isopool::worker {

namespace {

using base::checkSystemCall;

bool forbidTruncation() {
  const landlock::RulesetAttributes attributes{landlock::kTruncate, 0, 0};
  // Only the first member, which every version of the interface has.
  const auto ruleset = static_cast<int>(
      ::syscall(landlock::kCreateRuleset, &attributes, sizeof attributes.files, 0));
  return ruleset != -1 && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(landlock::kRestrictSelf, ruleset, 0) == 0 && ::close(ruleset) == 0;
}

void reopen(int stream) {
  struct stat status {};
  if (::fstat(stream, &status) != 0) return;
  if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) return;
  const int flags = ::fcntl(stream, F_GETFL);
  if (S_ISREG(status.st_mode)) ::fcntl(stream, F_SETFL, flags | O_APPEND);
  const std::string path = "/proc/self/fd/" + std::to_string(stream);
  const int opened = ::open(path.c_str(), O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
  if (opened == -1) return;
  ::dup3(opened, stream, 0);
  ::close(opened);
}

}  // namespace

void narrowStandardStreams(int landlock) {
  const base::Fd nothing(
      checkSystemCall(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open", "/dev/null"));
  checkSystemCall(::dup2(nothing.get(), STDIN_FILENO), "dup2", "standard input");
  // The kernel fixes the rights on a descriptor when it is opened, and a Landlock rule can't be
  // removed. So a child process, which shares these descriptors, applies the rule to itself and
  // opens the streams.
  const auto child = static_cast<pid_t>(checkSystemCall(
      static_cast<int>(::syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0)), "clone"));
  if (child == 0) {
    if (landlock >= landlock::kVersionWithTruncate && !forbidTruncation()) ::_exit(errno);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) reopen(stream);
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) == -1 && errno == EINTR) {
  }
  if (status != 0) {
    throw base::SystemCallError("landlock_restrict_self", "standard streams",
                                WIFEXITED(status) ? WEXITSTATUS(status) : EINTR);
  }
}

}  // namespace isopool::worker
