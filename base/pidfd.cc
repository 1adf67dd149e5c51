// SPDX-License-Identifier: BSD-3-Clause
#include "base/pidfd.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace isopool::base {

namespace {

constexpr int kReaped = -1;

/// What the kernel shows as the process of a pidfd: kReaped, 0 if it is none that this /proc shows
/// or if `pidfd` is not a pidfd. std::nullopt, with errno set, if that can't be read.
std::optional<int> shownProcess(const Fd& pidfd) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd.get());
  const Fd info(::open(path, O_RDONLY | O_CLOEXEC));
  if (!info.valid()) return errno == ENOENT ? std::optional<int>(0) : std::nullopt;
  char text[1024];
  const ssize_t length = ::read(info.get(), text, sizeof text - 1);
  text[std::max<ssize_t>(length, 0)] = '\0';
  const char* line = std::strstr(text, "\nPid:");
  return line != nullptr ? std::atoi(line + std::strlen("\nPid:")) : 0;
}

}  // namespace

std::optional<pid_t> processOf(const Fd& pidfd) {
  const std::optional<int> shown = shownProcess(pidfd);
  if (!shown) return std::nullopt;
  return std::max(0, *shown);
}

bool isReaped(const Fd& pidfd) { return shownProcess(pidfd) == kReaped; }

}  // namespace isopool::base
