// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/anonymous_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

namespace isopool::worker {

namespace {

std::optional<int> keptFolder;
std::string offeredFolder;

base::Fd openOfferedFolder() {
  if (offeredFolder.empty()) return {};
  if (::mkdir(offeredFolder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return {};
  return base::Fd(::open(offeredFolder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool writeText(const char* path, const char* text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written =
      ::write(fd, text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text));
  ::close(fd);
  return written;
}

// Runs in a child that shares this process's descriptors, because a process cannot leave a user
// namespace that it entered. Uses only system calls: other threads of this process may hold locks.
int mountFolder(const char* users, const char* groups) {
  if (::syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS) != 0) return -1;
  if (!writeText("/proc/self/uid_map", users) || !writeText("/proc/self/setgroups", "deny") ||
      !writeText("/proc/self/gid_map", groups)) {
    return -1;
  }
  const auto context = static_cast<int>(::syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC));
  if (context < 0) return -1;
  ::syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "mode", "0700", 0);
  ::syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "size", "64m", 0);
  // An empty file counts nothing towards the size, but takes a kilobyte of kernel memory.
  ::syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "nr_inodes", "16k", 0);
  int folder = -1;
  if (::syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0) {
    folder = static_cast<int>(::syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0));
  }
  ::close(context);
  return folder;
}

struct Mounting {
  const char* users;
  const char* groups;
  int report;  ///< a pipe's end for the folder's descriptor
};

int mountAndReport(void* argument) {
  const auto* mounting = static_cast<const Mounting*>(argument);
  const int folder = mountFolder(mounting->users, mounting->groups);
  (void)!::write(mounting->report, &folder, sizeof folder);
  ::_exit(0);
}

// Sets `killed` if a signal ended the child: then the result does not show whether this system
// allows such folders.
base::Fd mountInProcess(bool& killed) {
  char users[64];
  char groups[64];
  std::snprintf(users, sizeof users, "0 %u 1", ::geteuid());
  std::snprintf(groups, sizeof groups, "0 %u 1", ::getegid());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const base::Fd input(ends[0]);
  const base::Fd output(ends[1]);
  Mounting mounting{users, groups, output.get()};
  alignas(16) std::array<char, 64 * 1024> stack;
  // CLONE_VM | CLONE_VFORK: the child uses this process's memory while this thread waits. A copy of
  // the memory would cost milliseconds.
  const pid_t child = ::clone(mountAndReport, stack.data() + stack.size(),
                              CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, &mounting);
  if (child == -1) return {};
  int status = 0;
  while (::waitpid(child, &status, 0) == -1 && errno == EINTR) {
  }
  killed = WIFSIGNALED(status);
  // A killed child may have written nothing to the pipe, so this must not wait for it. The folder's
  // descriptor may stay open then.
  int folder = -1;
  if (::fcntl(input.get(), F_SETFL, O_NONBLOCK) != 0 ||
      ::read(input.get(), &folder, sizeof folder) != sizeof folder) {
    return {};
  }
  return base::Fd(folder);
}

}  // namespace

base::Fd makeAnonymousFolder() {
  constexpr int kMostAttempts = 5;
  for (int i = 0; i < kMostAttempts; ++i) {
    bool killed = false;
    base::Fd folder = mountInProcess(killed);
    if (!killed) return folder;
  }
  return {};
}

int keepAnonymousFolder() {
  keptFolder = makeAnonymousFolder().release();
  return *keptFolder;
}

void offerFolder(const std::string& path) { offeredFolder = path; }

int keepOfferedFolder() {
  base::Fd folder = openOfferedFolder();
  if (!folder.valid()) return -1;
  keptFolder = folder.release();
  return *keptFolder;
}

base::Fd takeAnonymousFolder() {
  if (!keptFolder) {
    base::Fd folder = makeAnonymousFolder();
    return folder.valid() ? std::move(folder) : openOfferedFolder();
  }
  return base::Fd(::fcntl(*keptFolder, F_DUPFD_CLOEXEC, 3));
}

}  // namespace isopool::worker
