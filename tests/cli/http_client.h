// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace isopool::tests {

/// A connection to a Unix socket or a port of this machine, for bytes of any kind. Every wait ends
/// after 20 s.
class HttpClient {
 public:
  explicit HttpClient(const std::string& path);
  explicit HttpClient(uint16_t port);

  void send(const std::string& bytes);
  /// Tells the server that nothing more is sent.
  void endSending();
  /// What the server sends until it closes the connection; "no end" behind it if it does not.
  std::string readToEnd();

 private:
  base::Fd socket_;
};

/// The answer to a GET of the target, header included.
std::string httpGet(const std::string& path, const std::string& target);

}  // namespace isopool::tests
