// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/fd.h"

namespace isopool::cli {

/// An address that metrics must not or can't be served at. The text is one line.
class AddressRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where metrics are served: a Unix socket, or a port of a loopback address. Never another address:
/// the listener has no authentication.
class ListenAddress {
 public:
  /// Reads `unix:PATH`, `127.0.0.1:PORT`, `[::1]:PORT` or `localhost:PORT`; port 0 lets the kernel
  /// choose. Throws AddressRefused.
  static ListenAddress parse(const std::string& text);

  /// A socket that listens there, non-blocking. Removes the Unix socket of a process that has
  /// ended; the new one has mode 0660. Throws AddressRefused if another process serves the address,
  /// or if it is not available.
  base::Fd listen() const;

  /// The path of a Unix socket; empty for a port.
  const std::string& path() const { return path_; }
  /// The address for a person, with the port that `socket`, from listen(), has.
  std::string describe(const base::Fd& socket) const;
  /// AF_UNIX, AF_INET or AF_INET6.
  int family() const { return family_; }

 private:
  base::Fd listenAtPath() const;
  base::Fd listenAtPort() const;

  std::string text_;
  std::string path_;
  std::string host_;  ///< numeric
  uint16_t port_ = 0;
  int family_ = 0;
};

}  // namespace isopool::cli
