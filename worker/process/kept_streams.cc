// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/kept_streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace isopool::worker {

namespace {

// Not among the numbers that programs use by habit.
constexpr int kLowest = 10;

}  // namespace

KeptStreams::KeptStreams() {
  for (int fd = 0; fd < static_cast<int>(streams_.size()); ++fd) {
    Stream& stream = streams_[static_cast<size_t>(fd)];
    struct stat status {};
    if (::fstat(fd, &status) != 0) continue;
    stream.duplicate = base::Fd(::fcntl(fd, F_DUPFD_CLOEXEC, kLowest));
    stream.flags = ::fcntl(fd, F_GETFL);
    stream.device = status.st_dev;
    stream.node = status.st_ino;
  }
}

bool KeptStreams::restore() const noexcept {
  for (int fd = 0; fd < static_cast<int>(streams_.size()); ++fd) {
    const Stream& stream = streams_[static_cast<size_t>(fd)];
    if (!stream.duplicate.valid()) continue;
    const auto isIt = [&stream](int descriptor) {
      struct stat status {};
      return ::fstat(descriptor, &status) == 0 && status.st_dev == stream.device &&
             status.st_ino == stream.node;
    };
    if (!isIt(fd)) {
      if (!isIt(stream.duplicate.get())) return false;
      ::dup2(stream.duplicate.get(), fd);
    }
    if (::fcntl(fd, F_GETFL) != stream.flags) ::fcntl(fd, F_SETFL, stream.flags);
  }
  return true;
}

}  // namespace isopool::worker
