// SPDX-License-Identifier: BSD-3-Clause
#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/fd.h"

namespace isopool::base {

namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

[[noreturn]] void failWith(int errorNumber) {
  throw FileError(std::strerror(errorNumber), errorNumber);
}

const char* kindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of another kind";
}

uint64_t systemMemory() {
  struct sysinfo info {};
  ::sysinfo(&info);
  return (static_cast<uint64_t>(info.totalram) + info.totalswap) * info.mem_unit;
}

struct OpenFile {
  explicit OpenFile(const std::string& path)
      // Without O_NONBLOCK the open of a FIFO waits for a writer.
      : fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
    // A socket can't be opened at all: the error of that is no help.
    if (!fd.valid() && !(errno == ENXIO && ::stat(path.c_str(), &status) == 0)) {
      failWith(errno);
    }
    if (fd.valid() && ::fstat(fd.get(), &status) != 0) failWith(errno);
    if (!S_ISREG(status.st_mode)) {
      throw FileError(std::string("is ") + kindOf(status.st_mode) +
                      " and not a regular file: only a regular file can be read");
    }
  }
  uint64_t bytes() const { return static_cast<uint64_t>(status.st_size); }
  bool isUnchanged() const {
    struct stat now {};
    return ::fstat(fd.get(), &now) == 0 && now.st_size == status.st_size &&
           now.st_mtim.tv_sec == status.st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == status.st_mtim.tv_nsec;
  }

  struct stat status {};
  Fd fd;
};

}  // namespace

void readRegularFile(const std::string& path,
                     const std::function<void(const char* data, size_t bytes)>& piece) {
  const OpenFile file(path);
  const uint64_t bytes = file.bytes();
  if (bytes > systemMemory()) {
    throw FileError("has " + std::to_string(bytes) + " bytes, more than this machine's memory");
  }
  std::vector<char> buffer(std::min<uint64_t>(bytes, kPieceBytes));
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got =
        ::read(file.fd.get(), buffer.data(), std::min<uint64_t>(buffer.size(), bytes - done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) failWith(errno);
    if (got == 0) throw FileError("became shorter while it was read");
    piece(buffer.data(), static_cast<size_t>(got));
    done += static_cast<uint64_t>(got);
  }
  if (!file.isUnchanged()) {
    throw FileError(
        "was changed while it was read: write files beside their place and rename them");
  }
}

std::string contentOfRegularFile(const std::string& path, uint64_t most) {
  std::string content;
  readRegularFile(path, [&](const char* data, size_t bytes) {
    content.append(data, bytes);
    if (content.size() > most) {
      throw FileError("has more than " + std::to_string(most) + " bytes");
    }
  });
  return content;
}

}  // namespace isopool::base
