// SPDX-License-Identifier: BSD-3-Clause
#include "tests/cli/http_client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "base/system_call.h"
#include "base/unix_address.h"

namespace isopool::tests {

namespace {

constexpr int kPatience = 20'000;  // ms

}  // namespace

HttpClient::HttpClient(const std::string& path)
    : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const auto name = base::UnixAddress::ofPath(path).value();
  base::checkSystemCall(::connect(socket_.get(), name.get(), name.bytes()), "connect", path);
}

HttpClient::HttpClient(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  base::checkSystemCall(
      ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
      "connect");
}

void HttpClient::endSending() { ::shutdown(socket_.get(), SHUT_WR); }

void HttpClient::send(const std::string& bytes) {
  // The server may have closed the connection.
  ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::string HttpClient::readToEnd() {
  std::string text;
  std::array<char, 65536> bytes;
  for (;;) {
    pollfd readable{socket_.get(), POLLIN, 0};
    if (::poll(&readable, 1, kPatience) != 1) return text + "no end";
    const ssize_t got = ::read(socket_.get(), bytes.data(), bytes.size());
    if (got <= 0) return text;
    text.append(bytes.data(), static_cast<size_t>(got));
  }
}

std::string httpGet(const std::string& path, const std::string& target) {
  HttpClient client(path);
  client.send("GET " + target + " HTTP/1.1\r\nHost: isopool\r\n\r\n");
  return client.readToEnd();
}

}  // namespace isopool::tests
