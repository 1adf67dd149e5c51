// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "cli/rates.h"
#include "ipc/control/operator_messages.h"

/// The order in which the entries of a report are shown.
namespace isopool::cli {

/// Workers by group and slot, then those without a slot.
void sortByPlace(ipc::Report& report);
/// Workers and clients with the highest rate first, then those with running or waiting calls.
/// Entries of equal rank keep their order.
void sortByActivity(ipc::Report& report, const std::optional<Rates>& rates);

}  // namespace isopool::cli
