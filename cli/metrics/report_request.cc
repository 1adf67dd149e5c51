// SPDX-License-Identifier: BSD-3-Clause
#include "cli/metrics/report_request.h"

#include <exception>
#include <utility>

namespace isopool::cli {

namespace asio = boost::asio;
using boost::system::error_code;

ReportRequest::ReportRequest(asio::io_context& io, const std::string& address, Done done)
    : done_(std::move(done)), readable_(io), deadline_(io) {
  try {
    link_.emplace(address);
    link_->request();
    readable_.assign(link_->fd());
    deadline_.expires_at(link_->deadline());
    deadline_.async_wait([this](const error_code& error) {
      if (error) return;
      try {
        link_->giveUp();
      } catch (const std::exception& failure) {
        fail(failure.what());
      }
    });
    awaitAnswer();
  } catch (const std::exception& failure) {
    // From the loop, like every answer.
    deadline_.expires_at(SupervisorLink::Clock::time_point::min());
    deadline_.async_wait([this, text = std::string(failure.what())](const error_code& error) {
      if (!error) fail(text);
    });
  }
}

// Cancelled handlers run later, with an error, and do not touch this object.
ReportRequest::~ReportRequest() {
  deadline_.cancel();
  if (readable_.is_open()) readable_.release();  // the link closes it
}

void ReportRequest::awaitAnswer() {
  readable_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code& error) {
    if (!error) readable();
  });
}

void ReportRequest::readable() {
  std::optional<ipc::Report> report;
  try {
    report = link_->receive();
  } catch (const std::exception& failure) {
    return fail(failure.what());
  }
  if (!report) return awaitAnswer();
  const Done done = done_;
  done(&*report, "");
}

void ReportRequest::fail(const std::string& failure) {
  const Done done = done_;
  done(nullptr, failure);
}

}  // namespace isopool::cli
