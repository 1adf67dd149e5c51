// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "cli/supervisor_link.h"
#include "ipc/control/operator_messages.h"

namespace isopool::cli {

/// The number of a client, as `isopool clients` shows it ("#7") or without the '#'; nothing if the
/// text is not a number from 1.
std::optional<uint64_t> clientNumberIn(std::string_view text);

/// The request to recycle a worker, by its process id ("4711") or its slot ("shared/0") as `isopool
/// workers` shows them; nothing if the text is neither.
std::optional<ipc::RequestAction> recyclingOf(std::string_view text);
/// The request to recycle all workers.
ipc::RequestAction recyclingOfAll();

/// The epochs of the workers of `report` that this request would replace.
std::set<uint64_t> workersMeant(const ipc::RequestAction& request, const ipc::Report& report);
/// Waits until the supervisor reports none of these workers, for `patience` at most. Returns how
/// many are left. Throws SupervisorUnreachable.
size_t awaitEndOf(const std::set<uint64_t>& epochs, SupervisorLink& link,
                  std::chrono::milliseconds patience);

}  // namespace isopool::cli
