// SPDX-License-Identifier: BSD-3-Clause
#include "cli/metrics/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/terminal_text.h"
#include "base/unix_address.h"

namespace isopool::cli {

namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kBacklog = 64;
constexpr uint32_t kLoopbackNetwork = 127;

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw AddressRefused("metrics can't be served at " + base::terminalText(text) + ": " + why);
}

std::optional<uint16_t> portOf(std::string_view text) {
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, port);
  if (error != std::errc() || behind != end || text.empty()) return std::nullopt;
  return port;
}

base::Fd makeSocket(const std::string& text, int family) {
  base::Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) refuse(text, std::strerror(errno));
  return socket;
}

bool isServed(const base::UnixAddress& address) {
  const base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(socket.get(), address.get(), address.bytes()) == 0 || errno != ECONNREFUSED;
}

}  // namespace

ListenAddress ListenAddress::parse(const std::string& text) {
  ListenAddress address;
  address.text_ = text;
  if (text.starts_with(kUnix)) {
    address.family_ = AF_UNIX;
    address.path_ = text.substr(kUnix.size());
    if (base::UnixAddress::ofPath(address.path_)) return address;
    refuse(text, "the path of a socket must have 1 to " +
                     std::to_string(base::UnixAddress::kMostBytes) + " bytes");
  }
  const size_t colon = text.rfind(':');
  const auto port =
      colon == std::string::npos ? std::nullopt : portOf(std::string_view(text).substr(colon + 1));
  if (!port) refuse(text, "an address is unix:PATH or 127.0.0.1:PORT or [::1]:PORT");
  address.port_ = *port;
  std::string host = text.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  address.host_ = host;
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) {
    address.family_ = AF_INET;
    if (ntohl(four.s_addr) >> 24 == kLoopbackNetwork) return address;
  } else if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) {
    address.family_ = AF_INET6;
    if (IN6_IS_ADDR_LOOPBACK(&six)) return address;
  }
  refuse(text,
         "only loopback addresses and Unix sockets are allowed, because the listener has no "
         "authentication; for other machines, put a proxy that has some in front of it");
}

base::Fd ListenAddress::listen() const {
  return family_ == AF_UNIX ? listenAtPath() : listenAtPort();
}

base::Fd ListenAddress::listenAtPath() const {
  const base::UnixAddress address = base::UnixAddress::ofPath(path_).value();
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) refuse(text_, "it exists and is not a socket");
    if (isServed(address)) refuse(text_, "another process serves it");
    ::unlink(path_.c_str());
  }
  base::Fd socket = makeSocket(text_, AF_UNIX);
  // Sets the mode before bind(): no process can connect with a wider one in between.
  const mode_t before = ::umask(0117);
  const int bound = ::bind(socket.get(), address.get(), address.bytes());
  const int error = errno;
  ::umask(before);
  if (bound != 0) refuse(text_, std::strerror(error));
  if (::listen(socket.get(), kBacklog) != 0) refuse(text_, std::strerror(errno));
  return socket;
}

base::Fd ListenAddress::listenAtPort() const {
  base::Fd socket = makeSocket(text_, family_);
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  int bound = -1;
  if (family_ == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    ::inet_pton(AF_INET, host_.c_str(), &address.sin_addr);
    bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port_);
    ::inet_pton(AF_INET6, host_.c_str(), &address.sin6_addr);
    bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  if (bound != 0 || ::listen(socket.get(), kBacklog) != 0) refuse(text_, std::strerror(errno));
  return socket;
}

std::string ListenAddress::describe(const base::Fd& socket) const {
  if (family_ == AF_UNIX) return text_;
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  uint16_t port = port_;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0) {
    port = ntohs(family_ == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                    : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  const std::string host = family_ == AF_INET6 ? "[" + host_ + "]" : host_;
  return "http://" + host + ":" + std::to_string(port) + "/metrics";
}

}  // namespace isopool::cli
