// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <optional>
#include <string>

#include "cli/supervisor_link.h"

namespace isopool::cli {

/// Requests one report of a supervisor over a connection of its own, so that a supervisor that was
/// restarted answers the next request. Waits for the answer in an event loop; only the connection
/// itself blocks, up to SupervisorLink::kPatience, and only if the supervisor is stopped and its
/// queue of connections is full. Not thread-safe.
class ReportRequest {
 public:
  /// Receives the report, or null and why there is none, on one line.
  using Done = std::function<void(const ipc::Report* report, const std::string& failure)>;

  /// Calls `done` once, from the loop, at the latest SupervisorLink::kPatience after the
  /// connection. It is not called after the destructor, and may destroy this object.
  ReportRequest(boost::asio::io_context& io, const std::string& address, Done done);
  ~ReportRequest();
  ReportRequest(const ReportRequest&) = delete;
  ReportRequest& operator=(const ReportRequest&) = delete;

 private:
  void awaitAnswer();
  void readable();
  void fail(const std::string& failure);

  const Done done_;
  std::optional<SupervisorLink> link_;
  boost::asio::posix::stream_descriptor readable_;
  boost::asio::steady_timer deadline_;
};

}  // namespace isopool::cli
