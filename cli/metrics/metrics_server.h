// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "cli/metrics/listen_address.h"

namespace isopool::cli {

/// Serves the metrics of the supervisor at `supervisor` over HTTP until SIGTERM or SIGINT: GET and
/// HEAD of /metrics and of /-/ready, one request for each connection. The supervisor may be absent,
/// end and start meanwhile: then isopool_up is 0.
///
/// At most 256 connections are open (HttpSession has their limits). A further one closes the oldest
/// that has sent no request yet, so that connections that do nothing delay no request. Requests
/// that arrive while a report is being requested share that report, so that the supervisor makes at
/// most one at a time.
///
/// Prints the address on standard output when it listens. Throws AddressRefused.
void serveMetrics(const std::string& supervisor, const ListenAddress& address);

}  // namespace isopool::cli
