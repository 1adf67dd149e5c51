// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/signal_set.hpp>
#include <functional>
#include <list>
#include <string>
#include <thread>

namespace service {

/// Accepts connections at a Unix socket. Each has a thread, which handles its lines one by one.
class Server {
 public:
  using Send = std::function<void(const std::string& line)>;
  using HandleLine = std::function<void(const std::string& line, const Send& send)>;

  /// Listens at `path`, which only this user may connect to. `newConversation` makes the function
  /// that handles the lines of one connection. Throws boost::system::system_error.
  Server(const std::string& path, std::function<HandleLine()> newConversation);

  /// Serves until SIGTERM or SIGINT. Then accepts no connection and no further line, and returns
  /// when every line that was being handled has been answered.
  void run();

 private:
  using Socket = boost::asio::local::stream_protocol::socket;
  struct Connection {
    explicit Connection(Socket accepted) : socket(std::move(accepted)) {}
    Socket socket;
    std::thread thread;
    std::atomic<bool> ended = false;
  };

  void accept();
  void add(Socket socket);
  void serve(Connection& connection) const;
  void removeEnded();

  std::function<HandleLine()> newConversation_;
  boost::asio::io_context loop_;
  boost::asio::signal_set stop_;
  boost::asio::local::stream_protocol::acceptor acceptor_;
  std::list<Connection> connections_;
};

}  // namespace service
