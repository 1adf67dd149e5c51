// SPDX-License-Identifier: BSD-3-Clause
#include "examples/service/server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <utility>

namespace service {

namespace asio = boost::asio;
using asio::local::stream_protocol;

namespace {

constexpr size_t kLongestLine = 64 * 1024;
constexpr size_t kMostConnections = 64;

stream_protocol::endpoint freed(const std::string& path) {
  ::unlink(path.c_str());  // a service that was killed leaves its socket
  ::umask(0077);
  return {path};
}

}  // namespace

Server::Server(const std::string& path, std::function<HandleLine()> newConversation)
    : newConversation_(std::move(newConversation)),
      stop_(loop_, SIGTERM, SIGINT),
      acceptor_(loop_, freed(path)) {}

void Server::run() {
  accept();
  stop_.async_wait([this](const boost::system::error_code&, int) { loop_.stop(); });
  loop_.run();
  acceptor_.close();
  for (Connection& each : connections_) {
    if (!each.ended) ::shutdown(each.socket.native_handle(), SHUT_RD);
  }
  for (Connection& each : connections_) each.thread.join();
  connections_.clear();
}

void Server::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, Socket socket) {
    removeEnded();
    if (!error && connections_.size() < kMostConnections) add(std::move(socket));
    accept();
  });
}

void Server::add(Socket socket) {
  Connection& added = connections_.emplace_back(std::move(socket));
  added.thread = std::thread([this, &added] {
    serve(added);
    added.ended = true;
  });
}

void Server::removeEnded() {
  for (auto each = connections_.begin(); each != connections_.end();) {
    if (each->ended) {
      each->thread.join();
      each = connections_.erase(each);
    } else {
      ++each;
    }
  }
}

void Server::serve(Connection& connection) const {
  const HandleLine handle = newConversation_();
  boost::system::error_code error;
  const Send send = [&](const std::string& line) {
    asio::write(connection.socket, asio::buffer(line + "\n"), error);
  };
  std::string unread;
  while (!error) {
    const size_t size = asio::read_until(connection.socket,
                                         asio::dynamic_buffer(unread, kLongestLine), '\n', error);
    if (error) break;  // the client has left, the service ends, or the line is too long
    handle(unread.substr(0, size - 1), send);
    unread.erase(0, size);
  }
  connection.socket.shutdown(Socket::shutdown_both, error);
}

}  // namespace service
