// SPDX-License-Identifier: BSD-3-Clause
#include "cli/metrics/metrics_server.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/weak_self.h"
#include "cli/findings.h"
#include "cli/metrics/http_session.h"
#include "cli/metrics/report_metrics.h"
#include "cli/metrics/report_request.h"
#include "cli/terminal.h"
#include "ipc/control/operator_messages.h"

namespace isopool::cli {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Protocol = HttpSession::Protocol;

constexpr std::chrono::milliseconds kAcceptRetry(100);
constexpr size_t kMostConnections = 256;

HttpAnswers answersOf(const ipc::Report* report, const std::string& failure) {
  const std::optional<std::string> why =
      report != nullptr ? whyNotReady(*report) : std::optional(failure);
  return {std::make_shared<const std::string>(report != nullptr ? metricsText(*report)
                                                                : metricsTextOfUnreachable()),
          std::make_shared<const std::string>(why.value_or("ready") + "\n"), !why};
}

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
      if (makeRoom()) return accept();
      acceptsNone_ = true;
    });
  }

  void open(Protocol::socket socket) {
    auto* session =
        new HttpSession(std::move(socket), [this](auto asking) { ask(std::move(asking)); });
    sessions_.push_back(session);
    // The last sessions end with the event loop, after this object.
    std::shared_ptr<HttpSession>(session, [self = self_.weak()](HttpSession* ended) {
      if (MetricsServer* alive = self.get()) alive->closed(ended);
      delete ended;
    })->run();
  }

  // Below the limit another connection has room: the oldest one that may still send a request makes
  // it, or else the oldest whose peer does not take its answer. False if all wait for a report,
  // which comes within SupervisorLink::kPatience.
  bool makeRoom() {
    if (sessions_.size() < kMostConnections) return true;
    using State = HttpSession::State;
    for (const auto& isOver :
         {+[](State state) { return state == State::kReading || state == State::kEnding; },
          +[](State state) { return state == State::kWriting; }}) {
      const auto oldest = std::find_if(sessions_.begin(), sessions_.end(),
                                       [&](auto* session) { return isOver(session->state()); });
      if (oldest == sessions_.end()) continue;
      (*oldest)->close();
      sessions_.erase(oldest);
      return true;
    }
    return false;
  }

  void closed(HttpSession* session) {
    sessions_.remove(session);
    if (std::exchange(acceptsNone_, false)) accept();
  }

  void ask(std::shared_ptr<HttpSession> session) {
    waiting_.push_back(std::move(session));
    if (request_) return;
    request_.emplace(io_, supervisor_,
                     [this](const ipc::Report* report, const std::string& failure) {
                       logChange(failure);
                       const HttpAnswers answers = answersOf(report, failure);
                       for (const auto& each : std::exchange(waiting_, {})) each->answer(answers);
                       request_.reset();
                       if (std::exchange(acceptsNone_, false)) accept();
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
  std::list<HttpSession*> sessions_;  ///< the oldest first; without those that are being closed
  bool acceptsNone_ = false;          ///< until a connection ends or gets its answer
  std::optional<ReportRequest> request_;
  std::vector<std::shared_ptr<HttpSession>> waiting_;
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
