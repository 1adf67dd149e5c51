// SPDX-License-Identifier: BSD-3-Clause
#include "cli/report_json.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/findings.h"
#include "cli/wording.h"

namespace isopool::cli {

namespace {

using base::Json;

Json rateOf(const std::map<uint64_t, double>* rates, uint64_t key) {
  const bool known = rates != nullptr && rates->count(key) != 0;
  return known ? rateJson(rates->at(key)) : Json();
}

/// Null if `number` is `none`.
template <typename Number>
Json numberUnless(Number none, Number number) {
  return number != none ? Json(number) : Json();
}

Json countsJson(const char* name, const std::vector<ipc::ReportedCount>& counts) {
  Json all = Json::array();
  for (const ipc::ReportedCount& each : counts) {
    all.push_back({{name, each.name}, {"count", each.count}});
  }
  return all;
}

Json groupsJson(const ipc::Report& report) {
  Json all = Json::array();
  for (const ipc::ReportedGroup& group : report.groups) {
    all.push_back({{"group", group.name},
                   {"completed_calls", group.completedCalls},
                   {"processor_ms", group.processorMilliseconds},
                   {"restarts", group.restarts},
                   {"recycled", group.recycled},
                   {"deaths", countsJson("cause", group.deaths)},
                   {"recent_deaths", group.recentDeaths},
                   {"quarantines", group.quarantines},
                   {"quarantined_slots", group.quarantinedSlots},
                   {"client_quarantines", group.clientQuarantines},
                   {"quarantined_clients", group.quarantinedClients},
                   {"denials", countsJson("kind", group.denials)}});
  }
  return all;
}

Json classesJson(const ipc::Report& report) {
  Json all = Json::array();
  for (const ipc::ReportedClass& each : report.classes) {
    all.push_back({{"class", each.name.empty() ? Json() : Json(each.name)},
                   {"connections", each.connections},
                   {"completed_calls", each.completedCalls},
                   {"overdue_calls", each.overdueCalls},
                   {"refusals", countsJson("limit", each.refusals)}});
  }
  return all;
}

// All as a number of microseconds; the last bound is null.
Json timesJson(const ipc::ModelCalls& calls) {
  Json all = Json::array();
  for (size_t i = 0; i < calls.times.size(); ++i) {
    const bool isLast = i >= ipc::kCallTimeBounds.size();
    all.push_back({{"at_most_us", isLast ? Json() : Json(ipc::kCallTimeBounds[i])},
                   {"calls", calls.times[i]}});
  }
  return all;
}

// The texts of the findings that are at least so severe.
Json textsOf(const std::vector<Finding>& found, Finding::Severity least) {
  Json all = Json::array();
  for (const Finding& finding : found) {
    if (finding.severity >= least) all.push_back(finding.text);
  }
  return all;
}

}  // namespace

Json rateJson(double callsPerSecond) { return std::round(callsPerSecond * 1000) / 1000; }

Json statusJson(const ipc::Report& report) {
  const Totals totals = totalsOf(report);
  const std::vector<Finding> found = findings(report);
  return {
      {"version", report.version},
      {"pid", report.processId},
      {"zygote_pid", numberUnless(0, report.zygoteProcessId)},
      {"address", report.address},
      {"state", report.state},
      {"successor", report.successor},
      {"reload_failure", report.reloadFailure},
      {"need_restart", report.needRestart},
      {"uptime_ms", report.uptimeMilliseconds},
      {"python_version", report.pythonVersion},
      {"torch_version", report.torchVersion},
      {"sandbox", report.sandbox},
      {"missing_protections", report.missingProtections},
      {"workers_serving", totals.servingWorkers},
      {"workers_spare", totals.spareWorkers},
      {"workers_other", totals.otherWorkers},
      {"restarts", report.restarts},
      {"recycled", report.recycled},
      {"unfit", report.unfit},
      {"zygote_restarts", report.zygoteRestarts},
      {"running_calls", totals.runningCalls},
      {"queued_calls", totals.queuedCalls},
      {"completed_calls", totals.completedCalls},
      {"shared_bytes", report.sharedBytes},
      {"lent_blocks", totals.lentBlocks},
      {"lent_bytes", totals.lentBytes},
      {"zombie_bytes", totals.zombieBytes},
      {"clients", report.clients.size()},
      {"refused_connections", report.refusedConnections},
      {"complete", report.complete},
      {"models", report.models.size()},
      {"model_bytes", totals.modelBytes},
      {"slots", slotsJson(report)},
      {"open_descriptors", report.openDescriptors},
      {"descriptor_limit", report.descriptorLimit},
      {"groups", groupsJson(report)},
      {"classes", classesJson(report)},
      {"ready", !whyNotReady(report)},
      {"findings", textsOf(found, Finding::Severity::kNotice)},
      {"problems", textsOf(found, Finding::Severity::kProblem)},
  };
}

Json workersJson(const ipc::Report& report, WithRates withRates,
                 const std::optional<Rates>& rates) {
  Json all = Json::array();
  for (const ipc::ReportedWorker& worker : report.workers) {
    const bool runs = worker.runningClient != 0;
    Json one{
        {"pid", numberUnless(0, worker.processId)},
        {"epoch", worker.epoch},
        {"group", worker.group},
        {"slot", worker.slot >= 0 ? Json(worker.slot) : Json()},
        {"state", worker.state},
        {"age_ms", worker.ageMilliseconds},
        {"completed_calls", worker.completedCalls},
    };
    if (withRates == WithRates::kYes) {
      one["calls_per_second"] = rateOf(rates ? &rates->ofWorkers : nullptr, worker.epoch);
    }
    one["clients"] = worker.clients;
    one["running_client"] = runs ? Json(worker.runningClient) : Json();
    one["running_ms"] = runs ? Json(worker.runningMilliseconds) : Json();
    one["waiting_clients"] = worker.waitingClients;
    one["private_bytes"] = worker.privateBytes;
    one["started_processes"] = worker.startedProcesses;
    one["started_zombies"] = worker.startedZombies;
    one["started_bytes"] = worker.startedBytes;
    one["output_bytes"] = worker.outputBytes;
    one["lent_blocks"] = worker.lentBlocks;
    one["lent_bytes"] = worker.lentBytes;
    one["zombie_bytes"] = worker.zombieBytes;
    one["forbidden_acts"] = countsJson("act", worker.forbiddenActs);
    one["processor_ms"] = worker.processorMilliseconds;
    one["threads"] = worker.threads;
    one["running_model"] = worker.runningModel.empty() ? Json() : Json(worker.runningModel);
    one["models"] = worker.models;
    one["gpu"] = worker.gpu.empty() ? Json() : Json(worker.gpu);
    all.push_back(std::move(one));
  }
  return all;
}

Json clientsJson(const ipc::Report& report, WithRates withRates,
                 const std::optional<Rates>& rates) {
  Json all = Json::array();
  for (const ipc::ReportedClient& client : report.clients) {
    Json one{
        {"number", client.number},
        {"pid", client.processId},
        {"user_id", client.userId},
        {"group_id", client.groupId},
        {"user", userName(client.userId)},
        {"program", client.program},
        {"class", client.clientClass.empty() ? Json() : Json(client.clientClass)},
        {"share", client.share},
        {"state", client.state},
        {"attached_ms", client.attachedMilliseconds},
        {"slots", client.slots},
        {"queued_calls", client.queuedCalls},
        {"running_calls", client.runningCalls},
        {"completed_calls", client.completedCalls},
    };
    if (withRates == WithRates::kYes) {
      one["calls_per_second"] = rateOf(rates ? &rates->ofClients : nullptr, client.number);
    }
    one["input_bytes"] = client.inputBytes;
    one["package_bytes"] = client.packageBytes;
    one["output_bytes"] = client.outputBytes;
    one["models"] = client.models;
    one["handles"] = client.handles;
    one["handle_bytes"] = client.handleBytes;
    one["overdue_calls"] = client.overdueCalls;
    one["refusals"] = client.refusals;
    one["quarantine_ms"] = client.quarantineMilliseconds;
    one["quarantine"] = client.quarantine;
    all.push_back(std::move(one));
  }
  return all;
}

Json slotsJson(const ipc::Report& report) {
  Json all = Json::array();
  for (const ipc::ReportedSlot& slot : report.slots) {
    const ipc::ReportedWorker* worker = workerOf(report, slot);
    all.push_back({{"group", slot.group},
                   {"slot", slot.slot},
                   {"pid", numberUnless(0, worker != nullptr ? worker->processId : 0)},
                   {"restarts", slot.restarts},
                   {"last_death", slot.lastDeath},
                   {"last_death_ms_ago", slot.lastDeathMillisecondsAgo},
                   {"quarantine_ms", slot.quarantineMilliseconds}});
  }
  return all;
}

Json modelsJson(const ipc::Report& report) {
  Json all = Json::array();
  for (const ipc::ReportedModel& model : report.models) {
    all.push_back({{"name", model.name},
                   {"bytes", model.bytes},
                   {"digest", model.digest.empty() ? Json() : Json(model.digest)},
                   {"clients", model.clients}});
  }
  return all;
}

Json modelCallsJson(const ipc::Report& report) {
  Json all = Json::array();
  for (const ipc::ReportedClass& each : report.classes) {
    for (const ipc::ModelCalls& model : each.models) {
      all.push_back({{"class", each.name.empty() ? Json() : Json(each.name)},
                     {"model", model.model},
                     {"answered", model.answered},
                     {"failed", model.failed},
                     {"workers", workersThatLoaded(report, model.model, each.name)},
                     {"times", timesJson(model)},
                     {"sum_us", model.sumMicroseconds}});
    }
  }
  return all;
}

Json settingsJson(const ipc::SettingsInForce& settings) {
  Json all = Json::array();
  for (const ipc::ReportedSetting& setting : settings.settings) {
    all.push_back({{"key", setting.key},
                   {"value", setting.value},
                   {"source", setting.source},
                   {"reloadable", setting.reloadable}});
  }
  return all;
}

}  // namespace isopool::cli
