// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
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

/// The request for an action about a client, or about the supervisor itself.
ipc::RequestAction requestOf(ipc::Action action, uint64_t target = 0,
                             std::chrono::milliseconds time = std::chrono::milliseconds(0));

/// The epochs of the workers of `report` that this request would replace.
std::set<uint64_t> workersMeant(const ipc::RequestAction& request, const ipc::Report& report);
/// Waits until the supervisor reports none of these workers, for `patience` at most. Returns how
/// many are left. Throws SupervisorUnreachable.
size_t awaitEndOf(const std::set<uint64_t>& epochs, SupervisorLink& link,
                  std::chrono::milliseconds patience);
/// Waits until the supervisor has closed the connection, because it ends. False if it does not do
/// that in time.
bool awaitEndOf(SupervisorLink& link, std::chrono::milliseconds patience);
/// Whether the supervisor has ended without an orderly stop: it was killed, or it crashed.
bool hasCrashed(SupervisorLink& link);
/// Waits until another process than `former` serves the address, for `patience` at most. Returns
/// its process id. Throws SupervisorUnreachable with the reason if none does.
int32_t awaitSuccessor(const std::string& address, int32_t former,
                       std::chrono::milliseconds patience);

}  // namespace isopool::cli
