// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "cli/rates.h"
#include "ipc/control/operator_messages.h"

/// The order in which the entries of a report are shown.
namespace isopool::cli {

/// Workers by group and slot, then those without a slot; clients by number.
void sortByPlace(ipc::Report& report);

enum class SortOrder {
  kActivity,  ///< the highest rate of calls first, then those with running or waiting calls
  kTime,      ///< workers: the longest running call first; clients: the most running calls
  kQueue,     ///< workers: the most waiting clients first; clients: the most queued calls
  kMemory,    ///< workers: the most memory of their own; clients: the most memory that they hold
  kPlace      ///< as sortByPlace()
};

/// Sorts workers and clients. Entries of equal rank are sorted by place.
void sortBy(ipc::Report& report, const std::optional<Rates>& rates, SortOrder order);

/// Memory that the client holds: inputs, packages, results, handles.
uint64_t memoryOf(const ipc::ReportedClient& client);

}  // namespace isopool::cli
