// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include "cli/json_writer.h"
#include "cli/rates.h"
#include "ipc/control/messages.h"

/// A report for programs. The names are those of docs/command-line.md, and stay.
namespace isopool::cli {

/// An object.
void writeStatus(JsonWriter& json, const ipc::Report& report);
/// Arrays. With rates each worker and client has calls_per_second, which is null without a report
/// before this one.
enum class WithRates { kNo, kYes };
void writeWorkers(JsonWriter& json, const ipc::Report& report, WithRates withRates = WithRates::kNo,
                  const std::optional<Rates>& rates = {});
void writeClients(JsonWriter& json, const ipc::Report& report, WithRates withRates = WithRates::kNo,
                  const std::optional<Rates>& rates = {});
void writeSlots(JsonWriter& json, const ipc::Report& report);
void writeModels(JsonWriter& json, const ipc::Report& report);

}  // namespace isopool::cli
