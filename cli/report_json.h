// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "base/json.h"
#include "cli/rates.h"
#include "ipc/control/messages.h"

/// A report for programs. The names are those of docs/command-line.md, and stay.
namespace isopool::cli {

/// An object.
base::Json statusJson(const ipc::Report& report);
/// Arrays. With rates each worker and client has calls_per_second, which is null without a report
/// before this one.
enum class WithRates { kNo, kYes };
base::Json workersJson(const ipc::Report& report, WithRates withRates = WithRates::kNo,
                       const std::optional<Rates>& rates = {});
base::Json clientsJson(const ipc::Report& report, WithRates withRates = WithRates::kNo,
                       const std::optional<Rates>& rates = {});
base::Json slotsJson(const ipc::Report& report);
base::Json modelsJson(const ipc::Report& report);

/// A rate: a number with three decimals.
base::Json rateJson(double callsPerSecond);

}  // namespace isopool::cli
