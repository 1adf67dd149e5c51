// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "cli/rates.h"
#include "ipc/control/messages.h"

/// In which order a report's entries are shown.
namespace isopool::cli {

/// Workers by group and slot, then those without a slot.
void sortByPlace(ipc::Report& report);
/// First who completes most calls, then who runs or waits; the others stay in their order.
void sortByActivity(ipc::Report& report, const std::optional<Rates>& rates);

}  // namespace isopool::cli
