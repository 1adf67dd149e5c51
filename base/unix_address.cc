// SPDX-License-Identifier: BSD-3-Clause
#include "base/unix_address.h"

#include <sys/stat.h>

namespace isopool::base {

std::optional<UnixAddress> UnixAddress::ofPath(std::string_view path) noexcept {
  if (path.empty() || path.size() > kMostBytes || path.find('\0') != path.npos) return {};
  UnixAddress address;
  address.address_.sun_family = AF_UNIX;
  path.copy(address.address_.sun_path, path.size());
  // The length does not count a terminating zero byte: the kernel adds it to a path, and in an
  // abstract name every byte counts.
  address.bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  return address;
}

std::optional<UnixAddress> UnixAddress::ofPathOrAbstractName(std::string_view name) noexcept {
  auto address = ofPath(name);
  if (address && name.front() == '@') {
    if (name.size() == 1) return {};
    address->address_.sun_path[0] = '\0';
  }
  return address;
}

std::string otherFileAt(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISSOCK(status.st_mode)) return {};
  if (S_ISDIR(status.st_mode)) return "a folder";
  return S_ISREG(status.st_mode) ? "a regular file" : "another kind of file";
}

}  // namespace isopool::base
