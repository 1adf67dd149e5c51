// SPDX-License-Identifier: BSD-3-Clause
#include "cli/metrics/metrics_server.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/weak_self.h"
#include "cli/findings.h"
#include "cli/metrics/report_metrics.h"
#include "cli/metrics/report_request.h"
#include "cli/terminal.h"
#include "ipc/control/operator_messages.h"

namespace isopool::cli {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;  // Unix sockets and ports alike

constexpr uint32_t kMostHeaderBytes = 8u << 10;
constexpr std::chrono::seconds kConnectionTime(10);
constexpr std::chrono::milliseconds kAcceptRetry(100);
constexpr size_t kMostConnections = 32;

constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kTextType = "text/plain; charset=utf-8";

std::string_view pathOf(std::string_view target) { return target.substr(0, target.find('?')); }

/// One connection and its one request. Keeps itself alive while an operation is outstanding.
class Session : public std::enable_shared_from_this<Session> {
 public:
  using Stream = beast::basic_stream<Protocol>;
  /// Requests a report for the session, which calls answer() with it.
  using Ask = std::function<void(std::shared_ptr<Session>)>;

  Session(Protocol::socket socket, Ask ask) : stream_(std::move(socket)), ask_(std::move(ask)) {
    request_.header_limit(kMostHeaderBytes);
    request_.body_limit(0);
  }

  void run() {
    // One deadline for reading and writing together.
    stream_.expires_after(kConnectionTime);
    http::async_read(
        stream_, buffer_, request_,
        [self = shared_from_this()](const error_code& error, size_t) { self->received(error); });
  }

  void answer(const ipc::Report* report, const std::string& failure) {
    if (pathOf(target()) == "/metrics") {
      return respond(http::status::ok, kMetricsType,
                     report != nullptr ? metricsText(*report) : metricsTextOfUnreachable());
    }
    const std::optional<std::string> why =
        report != nullptr ? whyNotReady(*report) : std::optional(failure);
    respond(why ? http::status::service_unavailable : http::status::ok, kTextType,
            why.value_or("ready") + "\n");
  }

 private:
  std::string_view target() const {
    const auto text = request_.get().target();
    return {text.data(), text.size()};
  }

  void received(const error_code& error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return respond(http::status::request_header_fields_too_large, kTextType,
                     "the header is larger than 8 KiB\n");
    }
    if (error == http::error::body_limit) {
      return respond(http::status::payload_too_large, kTextType, "a request has no body\n");
    }
    // The peer has left, the deadline is over, or this is not HTTP.
    if (error) return;
    const http::verb method = request_.get().method();
    if (method != http::verb::get && method != http::verb::head) {
      return respond(http::status::method_not_allowed, kTextType, "only GET and HEAD\n");
    }
    const std::string_view path = pathOf(target());
    if (path != "/metrics" && path != "/-/ready") {
      return respond(http::status::not_found, kTextType, "only /metrics and /-/ready\n");
    }
    ask_(shared_from_this());
  }

  void respond(http::status status, const char* type, std::string text) {
    response_.result(status);
    response_.version(11);
    response_.set(http::field::content_type, type);
    if (status == http::status::method_not_allowed) {
      response_.set(http::field::allow, "GET, HEAD");
    }
    response_.keep_alive(false);
    const bool withoutBody =
        request_.is_header_done() && request_.get().method() == http::verb::head;
    response_.content_length(text.size());
    if (!withoutBody) response_.body() = std::move(text);
    serializer_.emplace(response_);
    const auto sent = [self = shared_from_this()](const error_code&, size_t) {
      error_code ignored;
      self->stream_.socket().shutdown(Protocol::socket::shutdown_send, ignored);
    };
    if (withoutBody) return http::async_write_header(stream_, *serializer_, sent);
    http::async_write(stream_, *serializer_, sent);
  }

  Stream stream_;
  const Ask ask_;
  beast::flat_buffer buffer_{kMostHeaderBytes};
  http::request_parser<http::empty_body> request_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
};

class MetricsServer {
 public:
  MetricsServer(std::string supervisor, const ListenAddress& address, base::Fd socket)
      : supervisor_(std::move(supervisor)),
        signals_(io_, SIGTERM, SIGINT),
        acceptor_(io_, Protocol(address.family(), 0), socket.release()),
        retry_(io_),
        self_(this) {
    signals_.async_wait([this](const error_code&, int) { io_.stop(); });
  }

  void run() {
    accept();
    io_.run();
  }

 private:
  void accept() {
    acceptor_.async_accept([this](const error_code& error, Protocol::socket socket) {
      if (error) {
        // Without descriptors the connection stays pending: tries again later.
        retry_.expires_after(kAcceptRetry);
        return retry_.async_wait([this](const error_code&) { accept(); });
      }
      open(std::move(socket));
      if (sessions_ < kMostConnections) return accept();
      acceptsNone_ = true;
    });
  }

  void open(Protocol::socket socket) {
    ++sessions_;
    auto* session = new Session(std::move(socket),
                                [this](std::shared_ptr<Session> self) { ask(std::move(self)); });
    // The last sessions end with the event loop, after this object.
    std::shared_ptr<Session>(session, [self = self_.weak()](Session* ended) {
      delete ended;
      if (MetricsServer* alive = self.get()) alive->closed();
    })->run();
  }

  void closed() {
    --sessions_;
    if (std::exchange(acceptsNone_, false)) accept();
  }

  void ask(std::shared_ptr<Session> session) {
    waiting_.push_back(std::move(session));
    if (request_) return;
    request_.emplace(io_, supervisor_,
                     [this](const ipc::Report* report, const std::string& failure) {
                       logChange(failure);
                       for (const auto& each : std::exchange(waiting_, {})) {
                         each->answer(report, failure);
                       }
                       request_.reset();
                     });
  }

  // Scrapes repeat: each reason once.
  void logChange(const std::string& failure) {
    if (failure == std::exchange(lastFailure_, failure)) return;
    const std::string text = failure.empty() ? "the supervisor answers again" : failure;
    std::fprintf(stderr, "isopool: %s\n", text.c_str());
  }

  const std::string supervisor_;
  asio::io_context io_{1};
  asio::signal_set signals_;
  asio::basic_socket_acceptor<Protocol> acceptor_;
  asio::steady_timer retry_;
  size_t sessions_ = 0;
  bool acceptsNone_ = false;  ///< until a connection ends
  std::optional<ReportRequest> request_;
  std::vector<std::shared_ptr<Session>> waiting_;
  std::string lastFailure_;
  base::WeakSelf<MetricsServer> self_;
};

/// Removes the socket's file.
class SocketFile {
 public:
  explicit SocketFile(std::string path) : path_(std::move(path)) {}
  ~SocketFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

 private:
  const std::string path_;
};

}  // namespace

void serveMetrics(const std::string& supervisor, const ListenAddress& address) {
  base::Fd socket = address.listen();
  const SocketFile file(address.path());
  const std::string name = address.describe(socket);
  MetricsServer server(supervisor, address, std::move(socket));
  writeOut("serving metrics at " + name + "\n");
  server.run();
}

}  // namespace isopool::cli
