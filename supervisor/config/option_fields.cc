// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/config/option_fields.h"

#include <algorithm>
#include <array>

namespace isopool::supervisor {

namespace {

using base::SettingValue;

std::chrono::milliseconds milliseconds(const SettingValue& value) {
  return std::chrono::milliseconds(value.number);
}

uint32_t count(const SettingValue& value) { return static_cast<uint32_t>(value.number); }

base::LogLevel logLevel(const std::string& text) {
  constexpr std::array<std::string_view, 4> kNames{"debug", "info", "warning", "error"};
  const auto found = std::find(kNames.begin(), kNames.end(), text);
  return static_cast<base::LogLevel>(found - kNames.begin());  // not found: kOff
}

base::LogFormat logFormat(const std::string& text) {
  if (text == "text") return base::LogFormat::kText;
  return text == "json" ? base::LogFormat::kJson : base::LogFormat::kAuto;
}

struct Field {
  std::string_view key;
  void (*set)(Options& options, const SettingValue& value);
};

// In the order of base/settings/setting_table.cc.
constexpr Field kFields[] = {
    {"listen", [](Options& options, const SettingValue& value) { options.listen = value.text; }},
    {"socket_group",
     [](Options& options, const SettingValue& value) { options.socketGroup = value.text; }},
    {"workers",
     [](Options& options, const SettingValue& value) { options.workers = count(value); }},
    {"worker_program",
     [](Options& options, const SettingValue& value) { options.worker = value.text; }},
    {"spares", [](Options& options, const SettingValue& value) { options.spares = count(value); }},
    {"gpus", [](Options& options, const SettingValue& value) { options.gpus = value.items; }},
    {"restart_limit",
     [](Options& options, const SettingValue& value) { options.restart.deaths = count(value); }},
    {"restart_window",
     [](Options& options, const SettingValue& value) {
       options.restart.window = milliseconds(value);
     }},
    {"quarantine",
     [](Options& options, const SettingValue& value) {
       options.restart.quarantine = milliseconds(value);
     }},
    {"zygote_timeout",
     [](Options& options, const SettingValue& value) {
       options.zygoteTimeout = milliseconds(value);
     }},
    {"fork_timeout", [](Options& options,
                        const SettingValue& value) { options.forkTimeout = milliseconds(value); }},
    {"worker_timeout",
     [](Options& options, const SettingValue& value) {
       options.workerTimeout = milliseconds(value);
     }},
    {"stopped_timeout",
     [](Options& options, const SettingValue& value) {
       options.stoppedTimeout = milliseconds(value);
     }},
    {"handshake_timeout",
     [](Options& options, const SettingValue& value) {
       options.handshakeTimeout = milliseconds(value);
     }},
    {"drain_timeout",
     [](Options& options, const SettingValue& value) {
       options.drainTimeout = milliseconds(value);
     }},
    {"output_arena",
     [](Options& options, const SettingValue& value) { options.outputArena = value.number; }},
    {"output_arena_limit",
     [](Options& options, const SettingValue& value) { options.outputArenaLimit = value.number; }},
    {"max_clients",
     [](Options& options, const SettingValue& value) { options.maxClients = count(value); }},
    {"max_clients_per_user",
     [](Options& options, const SettingValue& value) { options.maxClientsPerUser = count(value); }},
    {"grace",
     [](Options& options, const SettingValue& value) { options.grace = milliseconds(value); }},
    {"limits.memory",
     [](Options& options, const SettingValue& value) { options.limits.memory = value.number; }},
    {"limits.leases",
     [](Options& options, const SettingValue& value) { options.limits.leases = count(value); }},
    {"limits.calls",
     [](Options& options, const SettingValue& value) { options.limits.calls = count(value); }},
    {"limits.call_time",
     [](Options& options, const SettingValue& value) {
       options.limits.callTime = milliseconds(value);
     }},
    {"limits.models",
     [](Options& options, const SettingValue& value) { options.limits.models = count(value); }},
    {"recycle.calls",
     [](Options& options, const SettingValue& value) { options.recycling.calls = value.number; }},
    {"recycle.age", [](Options& options,
                       const SettingValue& value) { options.recycling.age = milliseconds(value); }},
    {"recycle.memory_growth",
     [](Options& options, const SettingValue& value) {
       options.recycling.memoryGrowth = value.number;
     }},
    {"recycle.jitter",
     [](Options& options, const SettingValue& value) {
       options.recycling.jitterPercent = count(value);
     }},
    {"recycle.patience",
     [](Options& options, const SettingValue& value) {
       options.recycling.patience = milliseconds(value);
     }},
    {"sandbox.level",
     [](Options& options, const SettingValue& value) { options.sandbox = value.text; }},
    {"sandbox.memory",
     [](Options& options, const SettingValue& value) {
       options.recycling.memoryCap = value.number;
     }},
    {"sandbox.processes",
     [](Options& options, const SettingValue& value) { options.workerProcesses = value.number; }},
    {"log_level",
     [](Options& options, const SettingValue& value) { options.logLevel = logLevel(value.text); }},
    {"log_format", [](Options& options,
                      const SettingValue& value) { options.logFormat = logFormat(value.text); }},
    {"log_file", [](Options& options, const SettingValue& value) { options.logFile = value.text; }},
    {"worker_output_quota",
     [](Options& options, const SettingValue& value) { options.outputQuota = value.number; }},
    {"no_kill",
     [](Options& options, const SettingValue& value) { options.noKill = value.number != 0; }},
};

}  // namespace

bool setOption(Options& options, std::string_view key, const SettingValue& value) {
  const auto* field = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const Field& each) { return each.key == key; });
  if (field == std::end(kFields)) return false;
  field->set(options, value);
  return true;
}

}  // namespace isopool::supervisor
