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

std::optional<pid_t> processOf(const Fd& pidfd) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd.get());
  const Fd info(::open(path, O_RDONLY | O_CLOEXEC));
  if (!info.valid()) return errno == ENOENT ? std::optional<pid_t>(0) : std::nullopt;
  char text[1024];
  const ssize_t length = ::read(info.get(), text, sizeof text - 1);
  text[std::max<ssize_t>(length, 0)] = '\0';
  const char* line = std::strstr(text, "\nPid:");
  // -1 if the process is reaped.
  return line != nullptr ? std::max(0, std::atoi(line + std::strlen("\nPid:"))) : 0;
}

}  // namespace isopool::base
