// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "base/json.h"
#include "cli/rates.h"
#include "ipc/control/operator_messages.h"

/// A report as JSON for programs. docs/command-line.md lists the names; they are stable.
namespace isopool::cli {

/// A JSON object.
base::Json statusJson(const ipc::Report& report);
/// JSON arrays. With WithRates::kYes each worker and client has calls_per_second, which is null if
/// there was no previous report.
enum class WithRates { kNo, kYes };
base::Json workersJson(const ipc::Report& report, WithRates withRates = WithRates::kNo,
                       const std::optional<Rates>& rates = {});
base::Json clientsJson(const ipc::Report& report, WithRates withRates = WithRates::kNo,
                       const std::optional<Rates>& rates = {});
base::Json slotsJson(const ipc::Report& report);
base::Json modelsJson(const ipc::Report& report);
/// Calls by class and model.
base::Json modelCallsJson(const ipc::Report& report);
base::Json settingsJson(const ipc::SettingsInForce& settings);

/// A rate as a number, rounded to three decimals.
base::Json rateJson(double callsPerSecond);

}  // namespace isopool::cli
