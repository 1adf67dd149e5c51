// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "cli/rates.h"
#include "cli/styled_text.h"
#include "ipc/control/messages.h"

/// A report for people: a page for each question. Rates, where there are any, are a column more.
namespace isopool::cli {

Page statusPage(const ipc::Report& report);
/// In the order of the report, then slots that have no worker.
Page workersPage(const ipc::Report& report, const std::optional<Rates>& rates = {});
Page clientsPage(const ipc::Report& report, const std::optional<Rates>& rates = {});
Page modelsPage(const ipc::Report& report);

/// The first lines of `top`: what of the status changes.
Page summaryPage(const ipc::Report& report, const std::optional<Rates>& rates);

}  // namespace isopool::cli
