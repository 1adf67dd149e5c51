// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace isopool::cli {

/// What the requests that wait for one report get. The sessions share the texts.
struct HttpAnswers {
  std::shared_ptr<const std::string> metrics;
  std::shared_ptr<const std::string> readiness;
  bool ready = false;
};

/// One connection and its one request: GET or HEAD of /metrics or /-/ready, with at most 8 KiB of
/// header and no body. The request has to arrive within 5 s, and the answer to be taken within 10
/// s. Keeps itself alive while an operation is outstanding. Not thread-safe.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  /// Unix sockets and ports alike.
  using Protocol = boost::asio::generic::stream_protocol;
  /// Has the session's answer() called with the next report's.
  using Ask = std::function<void(std::shared_ptr<HttpSession>)>;

  enum class State {
    kReading,  ///< its request has not arrived yet
    kAsking,   ///< it waits for answer()
    kWriting,  ///< the peer has not taken the answer yet
    kEnding    ///< the peer has the answer; what it still sends is read, so that the answer is kept
  };

  HttpSession(Protocol::socket socket, Ask ask);

  void run();
  void answer(const HttpAnswers& answers);
  /// Closes the connection. The session is destroyed soon afterwards.
  void close();
  State state() const { return state_; }

 private:
  using Status = boost::beast::http::status;
  using Text = std::shared_ptr<const std::string>;

  std::string_view path() const;
  void received(const boost::system::error_code& error);
  void refuse(Status status, const char* text);
  void respond(Status status, const char* type, Text text);
  void sent();
  void readOn();

  boost::beast::basic_stream<Protocol> stream_;
  const Ask ask_;
  State state_ = State::kReading;
  boost::beast::flat_buffer buffer_;
  boost::beast::http::request_parser<boost::beast::http::empty_body> request_;
  Text text_;
  boost::beast::http::response<boost::beast::http::span_body<const char>> response_;
  std::optional<boost::beast::http::response_serializer<boost::beast::http::span_body<const char>>>
      serializer_;
  std::array<char, 4096> ignored_;
};

}  // namespace isopool::cli
