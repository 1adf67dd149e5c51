// SPDX-License-Identifier: BSD-3-Clause
#include "cli/metrics/http_session.h"

#include <chrono>
#include <string_view>
#include <utility>

namespace isopool::cli {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr uint32_t kMostHeaderBytes = 8u << 10;
constexpr std::chrono::seconds kReadingTime(5);
constexpr std::chrono::seconds kWritingTime(10);
constexpr std::chrono::seconds kEndingTime(1);

constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kTextType = "text/plain; charset=utf-8";

}  // namespace

HttpSession::HttpSession(Protocol::socket socket, Ask ask)
    : stream_(std::move(socket)), ask_(std::move(ask)), buffer_(kMostHeaderBytes) {
  request_.header_limit(kMostHeaderBytes);
  request_.body_limit(0);
}

void HttpSession::run() {
  stream_.expires_after(kReadingTime);
  http::async_read(
      stream_, buffer_, request_,
      [self = shared_from_this()](const error_code& error, size_t) { self->received(error); });
}

void HttpSession::close() { stream_.close(); }

// Without the query.
std::string_view HttpSession::path() const {
  const auto target = request_.get().target();
  const std::string_view text(target.data(), target.size());
  return text.substr(0, text.find('?'));
}

void HttpSession::received(const error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return refuse(Status::request_header_fields_too_large, "the header is larger than 8 KiB\n");
  }
  const bool hasBody = error == http::error::body_limit;
  // The peer has left, the time is over, or this is not HTTP.
  if (error && !hasBody) return;
  const http::verb method = request_.get().method();
  if (method != http::verb::get && method != http::verb::head) {
    return refuse(Status::method_not_allowed, "only GET and HEAD\n");
  }
  if (hasBody) return refuse(Status::payload_too_large, "a request has no body\n");
  if (path() != "/metrics" && path() != "/-/ready") {
    return refuse(Status::not_found, "only /metrics and /-/ready\n");
  }
  state_ = State::kAsking;
  ask_(shared_from_this());
}

void HttpSession::answer(const HttpAnswers& answers) {
  if (path() == "/metrics") return respond(Status::ok, kMetricsType, answers.metrics);
  respond(answers.ready ? Status::ok : Status::service_unavailable, kTextType, answers.readiness);
}

void HttpSession::refuse(Status status, const char* text) {
  respond(status, kTextType, std::make_shared<const std::string>(text));
}

void HttpSession::respond(Status status, const char* type, Text text) {
  state_ = State::kWriting;
  stream_.expires_after(kWritingTime);
  text_ = std::move(text);
  response_.result(status);
  response_.version(11);
  response_.set(http::field::content_type, type);
  if (status == Status::method_not_allowed) response_.set(http::field::allow, "GET, HEAD");
  response_.keep_alive(false);
  response_.content_length(text_->size());
  const bool withoutBody = request_.is_header_done() && request_.get().method() == http::verb::head;
  if (!withoutBody) response_.body() = {text_->data(), text_->size()};
  serializer_.emplace(response_);
  const auto done = [self = shared_from_this()](const error_code& error, size_t) {
    if (!error) self->sent();
  };
  if (withoutBody) return http::async_write_header(stream_, *serializer_, done);
  http::async_write(stream_, *serializer_, done);
}

void HttpSession::sent() {
  error_code ignored;
  stream_.socket().shutdown(Protocol::socket::shutdown_send, ignored);
  state_ = State::kEnding;
  stream_.expires_after(kEndingTime);
  readOn();
}

// A port that is closed with bytes that were not read makes the peer's kernel discard the answer.
void HttpSession::readOn() {
  stream_.async_read_some(asio::buffer(ignored_),
                          [self = shared_from_this()](const error_code& error, size_t) {
                            if (!error) self->readOn();
                          });
}

}  // namespace isopool::cli
