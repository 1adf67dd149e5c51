// SPDX-License-Identifier: BSD-3-Clause
#include "cli/report_json.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/findings.h"
#include "cli/wording.h"

namespace isopool::cli {

namespace {

void writeRate(JsonWriter& json, const std::map<uint64_t, double>* rates, uint64_t key) {
  json.name("calls_per_second");
  const bool known = rates != nullptr && rates->count(key) != 0;
  known ? json.value(rates->at(key)) : json.null();
}

// 0 stands for a process that is not there.
void writeProcess(JsonWriter& json, std::string_view name, int32_t processId) {
  json.name(name);
  processId != 0 ? json.value(processId) : json.null();
}

void writeTexts(JsonWriter& json, const std::vector<std::string>& texts) {
  json.beginArray();
  for (const std::string& text : texts) json.value(text);
  json.endArray();
}

}  // namespace

void writeStatus(JsonWriter& json, const ipc::Report& report) {
  const Totals totals = totalsOf(report);
  json.beginObject().field("version", report.version).field("pid", report.processId);
  writeProcess(json, "zygote_pid", report.zygoteProcessId);
  json.field("address", report.address)
      .field("state", report.state)
      .field("uptime_ms", report.uptimeMilliseconds)
      .field("python_version", report.pythonVersion)
      .field("torch_version", report.torchVersion)
      .field("sandbox", report.sandbox);
  json.name("missing_protections");
  writeTexts(json, report.missingProtections);
  json.field("workers_serving", totals.servingWorkers)
      .field("workers_spare", totals.spareWorkers)
      .field("workers_other", totals.otherWorkers)
      .field("restarts", report.restarts)
      .field("recycled", report.recycled)
      .field("unfit", report.unfit)
      .field("zygote_restarts", report.zygoteRestarts)
      .field("running_calls", totals.runningCalls)
      .field("queued_calls", totals.queuedCalls)
      .field("completed_calls", totals.completedCalls)
      .field("shared_bytes", report.sharedBytes)
      .field("lent_blocks", totals.lentBlocks)
      .field("lent_bytes", totals.lentBytes)
      .field("zombie_bytes", totals.zombieBytes)
      .field("clients", report.clients.size())
      .field("refused_connections", report.refusedConnections)
      .field("complete", report.complete)
      .field("models", report.models.size())
      .field("model_bytes", totals.modelBytes);
  json.name("slots");
  writeSlots(json, report);
  json.name("findings");
  writeTexts(json, findings(report));
  json.endObject();
}

void writeWorkers(JsonWriter& json, const ipc::Report& report, WithRates withRates,
                  const std::optional<Rates>& rates) {
  json.beginArray();
  for (const ipc::ReportedWorker& worker : report.workers) {
    json.beginObject();
    writeProcess(json, "pid", worker.processId);
    json.field("epoch", worker.epoch).field("crew", worker.crew).name("slot");
    worker.slot >= 0 ? json.value(worker.slot) : json.null();
    json.field("state", worker.state)
        .field("age_ms", worker.ageMilliseconds)
        .field("completed_calls", worker.completedCalls);
    if (withRates == WithRates::kYes) {
      writeRate(json, rates ? &rates->ofWorkers : nullptr, worker.epoch);
    }
    json.field("clients", worker.clients).name("running_client");
    worker.runningClient != 0 ? json.value(worker.runningClient) : json.null();
    json.name("running_ms");
    worker.runningClient != 0 ? json.value(worker.runningMilliseconds) : json.null();
    json.field("waiting_clients", worker.waitingClients)
        .field("private_bytes", worker.privateBytes)
        .field("output_bytes", worker.outputBytes)
        .field("lent_blocks", worker.lentBlocks)
        .field("lent_bytes", worker.lentBytes)
        .field("zombie_bytes", worker.zombieBytes)
        .name("forbidden_acts")
        .beginArray();
    for (const ipc::ReportedCount& act : worker.forbiddenActs) {
      json.beginObject().field("act", act.name).field("count", act.count).endObject();
    }
    json.endArray().endObject();
  }
  json.endArray();
}

void writeClients(JsonWriter& json, const ipc::Report& report, WithRates withRates,
                  const std::optional<Rates>& rates) {
  json.beginArray();
  for (const ipc::ReportedClient& client : report.clients) {
    json.beginObject()
        .field("number", client.number)
        .field("pid", client.processId)
        .field("user_id", client.userId)
        .field("group_id", client.groupId)
        .field("user", userName(client.userId))
        .field("program", client.program)
        .name("class");
    client.clientClass.empty() ? json.null() : json.value(client.clientClass);
    json.field("share", client.share)
        .field("state", client.state)
        .field("attached_ms", client.attachedMilliseconds)
        .field("slots", client.slots)
        .field("queued_calls", client.queuedCalls)
        .field("running_calls", client.runningCalls)
        .field("completed_calls", client.completedCalls);
    if (withRates == WithRates::kYes) {
      writeRate(json, rates ? &rates->ofClients : nullptr, client.number);
    }
    json.field("input_bytes", client.inputBytes)
        .field("package_bytes", client.packageBytes)
        .field("output_bytes", client.outputBytes)
        .field("models", client.models)
        .field("handles", client.handles)
        .field("handle_bytes", client.handleBytes)
        .field("overdue_calls", client.overdueCalls)
        .field("refusals", client.refusals)
        .endObject();
  }
  json.endArray();
}

void writeSlots(JsonWriter& json, const ipc::Report& report) {
  json.beginArray();
  for (const ipc::ReportedSlot& slot : report.slots) {
    const ipc::ReportedWorker* worker = workerOf(report, slot);
    json.beginObject().field("crew", slot.crew).field("slot", slot.slot);
    writeProcess(json, "pid", worker != nullptr ? worker->processId : 0);
    json.field("restarts", slot.restarts)
        .field("last_death", slot.lastDeath)
        .field("last_death_ms_ago", slot.lastDeathMillisecondsAgo)
        .endObject();
  }
  json.endArray();
}

void writeModels(JsonWriter& json, const ipc::Report& report) {
  json.beginArray();
  for (const ipc::ReportedModel& model : report.models) {
    json.beginObject()
        .field("name", model.name)
        .field("bytes", model.bytes)
        .field("digest", model.digest)
        .name("clients")
        .beginArray();
    for (const uint64_t client : model.clients) json.value(client);
    json.endArray().endObject();
  }
  json.endArray();
}

}  // namespace isopool::cli
