// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace isopool::base {

/// The address of a Unix socket in the form that the system calls take. A plain value: no socket
/// has to exist.
class UnixAddress {
 public:
  /// The longest path, in bytes.
  static constexpr size_t kMostBytes = sizeof(sockaddr_un::sun_path) - 1;

  /// std::nullopt if no socket can have this path: it is empty, too long, or has a zero byte.
  static std::optional<UnixAddress> ofPath(std::string_view path) noexcept;
  /// As ofPath(), but a name that begins with '@' is that of an abstract socket (unix(7)), which
  /// has no file.
  static std::optional<UnixAddress> ofPathOrAbstractName(std::string_view name) noexcept;

  /// For bind(2) and connect(2), together with bytes(). Valid as long as this object.
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t bytes() const noexcept { return bytes_; }

 private:
  UnixAddress() = default;

  sockaddr_un address_{};
  socklen_t bytes_ = 0;
};

/// What `path` is if no process can listen there: "a folder", "a regular file", "another kind of
/// file". Empty if it is a socket, does not exist or can't be looked at. For such a path connect(2)
/// has ECONNREFUSED, as for a socket without a listener.
std::string otherFileAt(const std::string& path);

}  // namespace isopool::base
