// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cli/rates.h"
#include "cli/styled_text.h"
#include "ipc/control/operator_messages.h"

/// A report as text for people, one page for each command. With rates, a page has one more column.
namespace isopool::cli {

Page statusPage(const ipc::Report& report);
/// Workers in the order of the report, then slots that have no worker.
/// A table that is wider than `columns` leaves out its least important columns.
Page workersPage(const ipc::Report& report, const std::optional<Rates>& rates = {},
                 size_t columns = SIZE_MAX);
Page clientsPage(const ipc::Report& report, const std::optional<Rates>& rates = {},
                 size_t columns = SIZE_MAX);
Page modelsPage(const ipc::Report& report);
Page settingsPage(const ipc::SettingsInForce& settings);

/// The first lines of `top`: the parts of the status that change.
Page summaryPage(const ipc::Report& report, const std::optional<Rates>& rates);

}  // namespace isopool::cli
