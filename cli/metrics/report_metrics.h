// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "ipc/control/operator_messages.h"

namespace isopool::cli {

/// A report as text in Prometheus' exposition format, version 0.0.4. docs/operating.md lists the
/// metrics; their names are stable. The number of series is bounded by the settings of the
/// supervisor (workers and classes) and by a limit for models: no series belongs to one client.
std::string metricsText(const ipc::Report& report);

/// The same for a supervisor that does not answer: isopool_up is 0, and nothing else is known.
std::string metricsTextOfUnreachable();

}  // namespace isopool::cli
