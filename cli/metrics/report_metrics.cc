// SPDX-License-Identifier: BSD-3-Clause
#include "cli/metrics/report_metrics.h"

#include <algorithm>
#include <map>
#include <vector>

#include "cli/findings.h"
#include "cli/metrics/metric_family.h"

namespace isopool::cli {

namespace {

using enum MetricFamily::Type;

constexpr size_t kMostModels = 50;
constexpr size_t kShortDigest = 12;
constexpr uint64_t kMicrosecondsPerMillisecond = 1000;

/// Collects the text of families.
class Exposition {
 public:
  void add(const MetricFamily& family) { text_ += family.text(); }
  /// A family of one series without labels.
  void gauge(const char* name, const char* help, uint64_t value) {
    MetricFamily family(name, kGauge, help);
    family.add({}, value);
    add(family);
  }
  void counter(const char* name, const char* help, uint64_t value) {
    MetricFamily family(name, kCounter, help);
    family.add({}, value);
    add(family);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string slotLabel(const ipc::ReportedWorker& worker) {
  return worker.slot >= 0 ? std::to_string(worker.slot) : worker.state;
}

std::string classLabel(const std::string& name) {
  return name.empty() ? std::string(ipc::kNoClass) : name;
}

void appendUp(Exposition& all, bool up) {
  all.gauge("isopool_up", "Whether the supervisor answered the last request for a report (0 or 1).",
            up ? 1 : 0);
}

void appendCounts(MetricFamily& family, const Labels& labels, std::string_view name,
                  const std::vector<ipc::ReportedCount>& counts) {
  for (const ipc::ReportedCount& each : counts) {
    Labels all = labels;
    all.emplace_back(name, each.name);
    family.add(all, each.count);
  }
}

void appendSupervisor(const ipc::Report& report, Exposition& all) {
  MetricFamily build("isopool_build_info", kGauge,
                     "The versions of isopool, Python and torch, and the level of the sandbox.");
  build.add({{"version", report.version},
             {"python_version", report.pythonVersion},
             {"torch_version", report.torchVersion},
             {"sandbox", report.sandbox}},
            1);
  all.add(build);
  MetricFamily uptime("isopool_uptime_seconds", kGauge, "Time since the supervisor started.");
  uptime.addMilliseconds({}, report.uptimeMilliseconds);
  all.add(uptime);
  MetricFamily state("isopool_state", kGauge, "The state that the supervisor is in has value 1.");
  for (const char* each : {"starting", "serving", "draining"}) {
    state.add({{"state", each}}, report.state == each ? 1 : 0);
  }
  all.add(state);
  all.gauge("isopool_ready", "Whether calls can be served (0 or 1), as isopool status --ready.",
            whyNotReady(report) ? 0 : 1);
  all.gauge("isopool_zygote_up", "Whether the process that forks workers runs (0 or 1).",
            report.zygoteProcessId != 0 ? 1 : 0);
  all.counter("isopool_zygote_restarts_total", "Zygotes that died and were replaced.",
              report.zygoteRestarts);
  all.gauge("isopool_sandbox_missing_protections",
            "Protections of the sandbox that this system does not support.",
            report.missingProtections.size());
  all.gauge("isopool_open_descriptors", "Descriptors that the supervisor has open.",
            report.openDescriptors);
  all.gauge("isopool_descriptors_limit", "Descriptors that the supervisor may have open.",
            report.descriptorLimit);
  all.gauge("isopool_client_descriptors",
            "Open descriptors of the supervisor for packages and segments of clients.",
            report.clientDescriptors);
  all.gauge("isopool_shared_memory_bytes",
            "Shared memory that the supervisor holds: channels, arenas, packages.",
            report.sharedBytes);
  all.gauge("isopool_memory_used_bytes",
            "Memory in use by the control group of the supervisor that is nearest to its limit, or "
            "by the machine, without what the kernel can take back at once.",
            report.memoryUsed);
  all.gauge("isopool_memory_limit_bytes", "The limit of isopool_memory_used_bytes.",
            report.memoryLimit);
  MetricFamily lost("isopool_log_lines_lost_total", kCounter,
                    "Lines that the log did not take, because its disk is full or its reader does "
                    "not read, by level; output: lines of workers.");
  appendCounts(lost, {}, "level", report.lostLogLines);
  all.add(lost);
  MetricFamily dropped("isopool_worker_lines_dropped_total", kCounter,
                       "Lines that workers printed and that were not logged: above the rate of one "
                       "worker, or above worker_output_quota.");
  appendCounts(dropped, {}, "reason", report.droppedOutput);
  all.add(dropped);
  all.gauge("isopool_report_complete",
            "Whether the report had room for all workers, clients and models (0 or 1).",
            report.complete ? 1 : 0);
}

std::vector<uint64_t> inMicroseconds(std::vector<uint64_t> milliseconds) {
  for (uint64_t& each : milliseconds) each *= kMicrosecondsPerMillisecond;
  return milliseconds;
}

void appendGroups(const ipc::Report& report, Exposition& all) {
  MetricFamily calls("isopool_calls_total", kCounter,
                     "Calls completed, by workers that have ended included.");
  MetricFamily processor("isopool_worker_cpu_seconds_total", kCounter,
                         "Processor time of workers, of those that have ended included.");
  MetricFamily deaths("isopool_worker_deaths_total", kCounter, "Workers that died, by cause.");
  MetricFamily restarts("isopool_worker_restarts_total", kCounter,
                        "Replacements of workers that died.");
  MetricFamily recycled("isopool_worker_recycled_total", kCounter,
                        "Healthy workers that were replaced, see the settings recycle.*.");
  MetricFamily quarantines("isopool_worker_quarantines_total", kCounter,
                           "Quarantines of slots and spares after repeated early deaths.");
  MetricFamily quarantined("isopool_slots_quarantined", kGauge, "Slots in quarantine.");
  MetricFamily clientQuarantines("isopool_client_quarantines_total", kCounter,
                                 "Quarantines of programs whose code repeatedly ended workers.");
  MetricFamily quarantinedClients("isopool_clients_quarantined", kGauge,
                                  "Programs in quarantine: they get no further worker.");
  MetricFamily denials("isopool_sandbox_denials_total", kCounter,
                       "Acts of user code that the sandbox denied, by kind.");
  MetricFamily starts("isopool_worker_start_duration_seconds", kHistogram,
                      "Time from the request for a worker until it could serve.");
  MetricFamily spares("isopool_spares", kGauge, "Spare workers that the settings want.");
  for (const ipc::ReportedGroup& group : report.groups) {
    const Labels labels{{"group", group.name}};
    calls.add(labels, group.completedCalls);
    processor.addMilliseconds(labels, group.processorMilliseconds);
    appendCounts(deaths, labels, "cause", group.deaths);
    restarts.add(labels, group.restarts);
    recycled.add(labels, group.recycled);
    quarantines.add(labels, group.quarantines);
    quarantined.add(labels, group.quarantinedSlots);
    clientQuarantines.add(labels, group.clientQuarantines);
    quarantinedClients.add(labels, group.quarantinedClients);
    spares.add(labels, group.spares);
    appendCounts(denials, labels, "kind", group.denials);
    starts.addDurations(labels, inMicroseconds(group.starts.bounds), group.starts.counts,
                        group.starts.sumMilliseconds * kMicrosecondsPerMillisecond);
  }
  for (const MetricFamily* each :
       {&calls, &processor, &deaths, &restarts, &recycled, &quarantines, &quarantined,
        &clientQuarantines, &quarantinedClients, &denials, &starts, &spares}) {
    all.add(*each);
  }
}

void appendSlots(const ipc::Report& report, Exposition& all) {
  MetricFamily slots("isopool_slots", kGauge, "Calls that can run at a time: slots for workers.");
  MetricFamily vacant("isopool_slots_vacant", kGauge, "Slots that have no worker.");
  for (const ipc::ReportedGroup& group : report.groups) {
    slots.add({{"group", group.name}}, 0);
    vacant.add({{"group", group.name}}, 0);
  }
  for (const ipc::ReportedSlot& slot : report.slots) {
    slots.add({{"group", slot.group}}, 1);
    vacant.add({{"group", slot.group}}, workerOf(report, slot) == nullptr ? 1 : 0);
  }
  all.add(slots);
  all.add(vacant);
}

void appendWorkers(const ipc::Report& report, Exposition& all) {
  MetricFamily workers("isopool_workers", kGauge, "Worker processes, by state.");
  MetricFamily stopped("isopool_workers_stopped", kGauge,
                       "Workers that a signal has stopped (SIGSTOP) and none has continued.");
  MetricFamily running("isopool_calls_running", kGauge, "Calls that run.");
  MetricFamily runningFor("isopool_worker_call_seconds", kGauge,
                          "For how long the call of the worker has been running; 0 if none runs.");
  MetricFamily waiting("isopool_worker_waiting_clients", kGauge,
                       "Clients that waited for the worker when it took its running call.");
  MetricFamily clients("isopool_worker_clients", kGauge, "Clients attached to the worker.");
  MetricFamily threads("isopool_worker_threads", kGauge, "Threads of the worker.");
  MetricFamily own("isopool_worker_private_bytes", kGauge,
                   "Resident anonymous memory of the worker beyond that of the zygote.");
  MetricFamily started("isopool_worker_started_processes", kGauge,
                       "Processes that user code of the worker has started.");
  MetricFamily startedZombies(
      "isopool_worker_started_zombies", kGauge,
      "Processes that user code has started, have ended, and nothing waited for.");
  MetricFamily startedBytes("isopool_worker_started_bytes", kGauge,
                            "Private memory of the processes that user code has started.");
  MetricFamily arena("isopool_worker_output_bytes", kGauge,
                     "Shared memory that the worker has for results.");
  MetricFamily lentResults("isopool_worker_lent_results", kGauge,
                           "Results in shared memory that clients hold.");
  MetricFamily lent("isopool_worker_lent_bytes", kGauge, "Size of the results that clients hold.");
  MetricFamily zombie("isopool_worker_zombie_bytes", kGauge,
                      "Memory of clients that have left, to which objects of the worker refer.");
  for (const ipc::ReportedGroup& group : report.groups) {
    for (const char* state : {"starting", "serving", "spare", "retiring", "dying"}) {
      workers.add({{"group", group.name}, {"state", state}}, 0);
    }
    running.add({{"group", group.name}}, 0);
    stopped.add({{"group", group.name}}, 0);
  }
  for (const ipc::ReportedWorker& worker : report.workers) {
    workers.add({{"group", worker.group}, {"state", worker.state}}, 1);
    running.add({{"group", worker.group}}, worker.runningClient != 0 ? 1 : 0);
    stopped.add({{"group", worker.group}}, worker.stopped ? 1 : 0);
    const Labels labels{{"group", worker.group}, {"slot", slotLabel(worker)}};
    runningFor.addMilliseconds(labels, worker.runningMilliseconds);
    waiting.add(labels, worker.waitingClients);
    clients.add(labels, worker.clients);
    threads.add(labels, worker.threads);
    own.add(labels, worker.privateBytes);
    started.add(labels, worker.startedProcesses);
    startedZombies.add(labels, worker.startedZombies);
    startedBytes.add(labels, worker.startedBytes);
    arena.add(labels, worker.outputBytes);
    lentResults.add(labels, worker.lentBlocks);
    lent.add(labels, worker.lentBytes);
    zombie.add(labels, worker.zombieBytes);
  }
  for (const MetricFamily* each :
       {&workers, &stopped, &running, &runningFor, &waiting, &clients, &threads, &own, &started,
        &startedZombies, &startedBytes, &arena, &lentResults, &lent, &zombie}) {
    all.add(*each);
  }
}

void appendClasses(const ipc::Report& report, Exposition& all) {
  MetricFamily connections("isopool_client_connections_total", kCounter,
                           "Programs that have attached.");
  MetricFamily calls("isopool_client_calls_total", kCounter,
                     "Calls completed for clients, by workers that have ended included.");
  MetricFamily overdue("isopool_client_calls_overdue_total", kCounter,
                       "Calls that ran past their deadline or limits.call_time.");
  MetricFamily refusals("isopool_client_refusals_total", kCounter,
                        "Requests that the supervisor refused because a limit was met.");
  for (const ipc::ReportedClass& each : report.classes) {
    const Labels labels{{"class", classLabel(each.name)}};
    connections.add(labels, each.connections);
    calls.add(labels, each.completedCalls);
    overdue.add(labels, each.overdueCalls);
    appendCounts(refusals, labels, "limit", each.refusals);
  }
  for (const MetricFamily* each : {&connections, &calls, &overdue, &refusals}) all.add(*each);
}

// A supervisor of an earlier release reports none.
void appendModelCalls(const ipc::Report& report, Exposition& all) {
  MetricFamily calls("isopool_model_calls_total", kCounter,
                     "Calls of the model, as the programs report them every two seconds.");
  MetricFamily times("isopool_model_call_duration_seconds", kHistogram,
                     "Time of the calls that returned a value, as their callers saw it: with the "
                     "time in line and for loading.");
  const std::vector<uint64_t> bounds(ipc::kCallTimeBounds.begin(), ipc::kCallTimeBounds.end());
  for (const ipc::ReportedClass& each : report.classes) {
    for (const ipc::ModelCalls& model : each.models) {
      const Labels labels{{"class", classLabel(each.name)}, {"model", model.model}};
      Labels withResult = labels;
      withResult.emplace_back("result", "answered");
      calls.add(withResult, model.answered);
      withResult.back().second = "failed";
      calls.add(withResult, model.failed);
      times.addDurations(labels, bounds, model.times, model.sumMicroseconds);
    }
  }
  all.add(calls);
  all.add(times);
}

void appendClients(const ipc::Report& report, Exposition& all) {
  MetricFamily clients("isopool_clients", kGauge, "Connected programs.");
  MetricFamily queued("isopool_calls_queued", kGauge,
                      "Calls that no worker has taken: in the rings of clients, and in line in "
                      "the programs, as these report them every two seconds.");
  std::map<std::string, uint64_t> longestStall;
  MetricFamily memory("isopool_client_memory_bytes", kGauge,
                      "Memory that clients hold; handles: in the workers' own memory.");
  const auto addMemory = [&](const std::string& name, const ipc::ReportedClient& client) {
    memory.add({{"class", name}, {"kind", "inputs"}}, client.inputBytes);
    memory.add({{"class", name}, {"kind", "packages"}}, client.packageBytes);
    memory.add({{"class", name}, {"kind", "results"}}, client.outputBytes);
    memory.add({{"class", name}, {"kind", "handles"}}, client.handleBytes);
  };
  for (const ipc::ReportedClass& each : report.classes) {
    const std::string name = classLabel(each.name);
    clients.add({{"class", name}}, 0);
    queued.add({{"class", name}}, 0);
    longestStall[name] = 0;
    addMemory(name, {});
  }
  for (const ipc::ReportedClient& client : report.clients) {
    const std::string name = classLabel(client.clientClass);
    clients.add({{"class", name}}, 1);
    queued.add({{"class", name}}, client.queuedCalls);
    longestStall[name] = std::max(longestStall[name], client.stalledMilliseconds);
    addMemory(name, client);
  }
  MetricFamily stalled("isopool_client_stalled_seconds", kGauge,
                       "The longest time for which one program of the class has had calls queued "
                       "while none of its calls completed.");
  for (const auto& [name, time] : longestStall) stalled.addMilliseconds({{"class", name}}, time);
  for (const MetricFamily* each : {&clients, &queued, &stalled, &memory}) all.add(*each);
  all.gauge("isopool_clients_limit", "Programs that may be connected (max_clients).",
            report.clientLimit);
  MetricFamily refused("isopool_connections_refused_total", kCounter,
                       "Connections that the supervisor refused or ended.");
  const uint64_t byLimit = std::min(report.refusedPrograms, report.refusedConnections);
  refused.add({{"reason", "max_clients"}}, byLimit);
  refused.add({{"reason", "other"}}, report.refusedConnections - byLimit);
  all.add(refused);
}

// The largest models by name; the others as one, so that a program that loads many does not make
// as many series.
void appendModels(const ipc::Report& report, Exposition& all) {
  all.gauge("isopool_models", "Packages and stored models that are loaded.", report.models.size());
  MetricFamily bytes("isopool_model_bytes", kGauge,
                     "Size of a loaded model, which all its clients share; of models without a "
                     "digest: of all with this name.");
  MetricFamily clients("isopool_model_clients", kGauge, "Clients that have loaded the model.");
  std::vector<const ipc::ReportedModel*> models;
  for (const ipc::ReportedModel& model : report.models) models.push_back(&model);
  std::stable_sort(models.begin(), models.end(),
                   [](const auto* one, const auto* other) { return one->bytes > other->bytes; });
  for (size_t rank = 0; rank < models.size(); ++rank) {
    const bool named = rank < kMostModels;
    const Labels labels{{"model", named ? models[rank]->name : "others"},
                        {"digest", named ? models[rank]->digest.substr(0, kShortDigest) : ""}};
    bytes.add(labels, models[rank]->bytes);
    clients.add(labels, models[rank]->clients.size());
  }
  all.add(bytes);
  all.add(clients);
}

}  // namespace

std::string metricsText(const ipc::Report& report) {
  Exposition all;
  appendUp(all, true);
  appendSupervisor(report, all);
  appendGroups(report, all);
  appendSlots(report, all);
  appendWorkers(report, all);
  appendClasses(report, all);
  appendModelCalls(report, all);
  appendClients(report, all);
  appendModels(report, all);
  return all.take();
}

std::string metricsTextOfUnreachable() {
  Exposition all;
  appendUp(all, false);
  return all.take();
}

}  // namespace isopool::cli
