// SPDX-License-Identifier: BSD-3-Clause
// runBatch() and retryBatch(): one run from its beginning to its end.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "base/json.h"
#include "base/mutex.h"
#include "batch/journal/journal.h"
#include "batch/plan/chunk_size.h"
#include "batch/runner/job_text.h"
#include "batch/runner/lane.h"
#include "batch/runner/output_folder.h"
#include "batch/runner/planned_jobs.h"
#include "batch/runner/planner.h"
#include "batch/runner/quarantine_table.h"
#include "batch/runner/shared_state.h"
#include "batch/runner/worker_calls.h"
#include "batch/runner/worker_modules.h"
#include "isopool/batch.h"
#include "isopool/isopool.h"

namespace isopool {

namespace batch {

namespace {

using base::Json;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(100);
/// A pool whose supervisor is killed is made again so often while no item is completed.
constexpr int kPoolLosses = 5;
constexpr const char* kCalls = "isopool_batch.calls";

enum class Task { kRun, kRetry };

/// Names what differs between two JSON objects of fingerprints.
std::string changes(const std::string& before, const std::string& now) {
  const Json old = Json::parse(before);
  const Json present = Json::parse(now);
  std::string names;
  for (const auto& [key, value] : present.items()) {
    if (!old.contains(key) || old[key] != value) names += (names.empty() ? "" : " and the ") + key;
  }
  return names;
}

/// What Planner::grow() has found: "2 inputs are new (a.txt, b.txt), 1 has changed (c.txt)".
std::string wordsForGrowth(const Json& inputs) {
  std::string words;
  const auto add = [&](const char* what, const char* one, const char* several) {
    const Json& found = inputs.at(what);
    const uint64_t count = found.at("count");
    if (count == 0) return;
    words += (words.empty() ? "" : ", ") + std::to_string(count) +
             (words.empty() ? (count == 1 ? " input " : " inputs ") : " ") +
             (count == 1 ? one : several) + " (";
    std::string names;
    for (const Json& name : found.at("examples")) {
      names += (names.empty() ? "" : ", ") + name.get<std::string>();
    }
    words += names + (count > found.at("examples").size() ? ", ...)" : ")");
  };
  add("new", "is new", "are new");
  add("changed", "has changed", "have changed");
  add("removed", "was removed, and its results stay", "were removed, and their results stay");
  return words.empty() ? "no input is new or has changed" : words;
}

class Run {
 public:
  Run(BatchJob job, const BatchControl& control)
      : job_(std::move(job)),
        control_(control),
        workerJob_(workerJob(job_)),
        parquet_(isParquet(workerJob_)),
        folder_(job_.output, job_.shard, job_.shards),
        journal_(folder_.journal()) {}

  BatchSummary run(Task task) {
    makePool();
    plan(task);
    removeDropped();
    folder_.removeIncompleteParts();
    checkParts();
    SharedState shared(journal_, {job_.maxFailures, job_.maxFailureShare}, control_,
                       parquet_ && !folder_.hasSchema());
    shared_ = &shared;
    work();
    if (const std::exception_ptr error = shared.error()) {
      // A corrected job is another one, and nothing is in its way.
      if (shared.mistaken()) journal_.forgetPlan();
      writeQuarantine(folder_, journal_.quarantined());
      std::rethrow_exception(error);
    }
    return conclude();
  }

 private:
  // A pool ignores this field if a variable attaches it; then an item could take all memory.
  void refuseWhatASharedSupervisorIgnores() const {
    const char* address = std::getenv("ISOPOOL_SOCKET");
    if (job_.pool.workerMemory == 0 || address == nullptr || *address == '\0') return;
    throw BatchRefused(
        "the memory of a worker (--memory) is decided by the operator of the shared "
        "supervisor " +
        std::string(address) +
        ", which ISOPOOL_SOCKET names: leave the limit out, or unset the variable");
  }

  void makePool() {
    refuseWhatASharedSupervisorIgnores();
    model_.reset();
    package_.reset();
    manager_.reset();
    manager_ = std::make_unique<InterpreterManager>(job_.pool);
    for (const EmbeddedModule& module : embeddedModules()) {
      manager_->registerModuleSource(std::string("isopool_batch.") + module.name, module.text);
    }
    const ModelSource source = modelSource(job_.model);
    if (source.kind != ModelSource::Kind::kStored) return;
    try {
      if (source.name.empty()) {
        model_ = manager_->loadModel(source.path);
      } else {
        const size_t slash = source.name.find('/');
        package_ = manager_->loadPackage(source.path);
        model_ = package_->loadPickle(source.name.substr(0, slash), source.name.substr(slash + 1));
      }
    } catch (const std::exception& error) {
      throw BatchRefused("the model can't be loaded: " + std::string(error.what()));
    }
  }

  /// Asks a worker what the inputs are; makes the plan, or checks that it is still right.
  void plan(Task task) {
    try {
      InterpreterSession session = manager_->acquireOne();
      const Planner planner(session, workerJob_);
      const Json summary = planner.summary();
      const std::string fingerprint = base::jsonText(summary.at("fingerprint"));
      const std::string known = journal_.fact("fingerprint");
      if (task == Task::kRetry) {
        planAgain(known, fingerprint);
        requireSchema();
        return;
      }
      if (job_.update && !known.empty() && hasResults()) {
        planMore(planner, known, fingerprint, summary);
        requireSchema();
        return;
      }
      if (!known.empty() && known != fingerprint && !job_.force && hasResults()) {
        throw BatchRefused("output: " + job_.output + " holds a run that differs in the " +
                           changes(known, fingerprint) + ": name another folder, " +
                           hintOfUpdate(known, fingerprint) +
                           "or start anew with --force (BatchJob::force), which removes its "
                           "results");
      }
      if (known != fingerprint) planAnew(planner, summary, known, fingerprint);
      if (!job_.schema.empty() && !folder_.hasSchema()) {
        const Obj frozen = session.global(kCalls, "freeze_schema")
                               .call({at::IValue(workerJob_), at::IValue(fingerprint),
                                      at::IValue(std::vector<std::string>())},
                                     {}, Planner::patience());
      }
      requireSchema();
    } catch (const RemoteError& error) {
      throw BatchRefused("the inputs can't be planned: " + error.message());
    } catch (const WorkerLost& error) {
      throw BatchRefused("the inputs can't be planned: " + std::string(error.what()));
    }
  }

  /// Parts that come have the types of those that exist.
  void requireSchema() {
    if (!parquet_ || folder_.hasSchema() || journal_.doneParts().empty()) return;
    throw BatchRefused(
        "output: " + job_.output +
        " has parts, but its file __job__/schema.json is gone: name another folder, or "
        "remove this one");
  }

  static std::string hintOfUpdate(const std::string& known, const std::string& fingerprint) {
    if (changes(known, fingerprint) != "input") return {};
    return "do what is new or has changed with --update (BatchJob::update), ";
  }

  /// Adds to the plan what is new or has changed in the inputs.
  void planMore(const Planner& planner, const std::string& known, const std::string& fingerprint,
                const Json& summary) {
    const std::string changed = changes(known, fingerprint);
    if (!changed.empty() && changed != "input") {
      throw BatchRefused("output: " + job_.output + " holds a run that differs in the " + changed +
                         ", and --update (BatchJob::update) is for other inputs only: name another "
                         "folder, or start anew with --force (BatchJob::force)");
    }
    const std::string before = journal_.fact(kInputFact);
    if (before.empty()) {
      throw BatchRefused("output: the run in " + job_.output +
                         " is of an earlier version, which did not keep what --update needs");
    }
    PlanGrowth growth;
    const Json inputs = planner.grow(before, journal_.known(), growth);
    Planner::Chunks chunks(planner, std::stoul(journal_.fact("items_of_chunk")));
    const auto next = [&]() -> std::optional<PlannedChunk> {
      const std::optional<Json> chunk = chunks.next();
      if (!chunk) return std::nullopt;
      return PlannedChunk{0, chunk->at("rows"), base::jsonText(*chunk), {}};
    };
    journal_.grow(growth, next, factsOfPlan(summary, fingerprint));
    updated_ = wordsForGrowth(inputs);
  }

  Facts factsOfPlan(const Json& summary, const std::string& fingerprint) const {
    return {{"fingerprint", fingerprint},
            {"job", base::jsonText(storedJob(job_))},
            {kInputFact, base::jsonText(Json::parse(workerJob_).at("input"))},
            {"items_of_all_shards", std::to_string(summary.at("items").get<uint64_t>())}};
  }

  /// The model may be another one than before, corrected; the items may not.
  void planAgain(const std::string& known, const std::string& fingerprint) {
    const std::string changed = changes(known, fingerprint);
    if (!changed.empty() && changed != "model") {
      throw BatchRefused("output: since the run in " + job_.output +
                         " more than the model was "
                         "changed (" +
                         changed + "): start it anew");
    }
    journal_.planQuarantineAgain(job_.shards, {{"fingerprint", fingerprint}});
  }

  /// A run that ended before its first item, as by a mistake in the model, is in nobody's way.
  bool hasResults() { return folder_.hasResults() || journal_.counts().quarantined > 0; }

  void planAnew(const Planner& planner, const Json& summary, const std::string& known,
                const std::string& fingerprint) {
    const uint64_t items = summary.at("items");
    const uint64_t workers =
        job_.shards == 1 ? manager_->allInstances().size() : job_.shards * kAssumedWorkersPerShard;
    const uint32_t call = std::max<uint32_t>(job_.batchSize, 1);
    const uint32_t most =
        job_.chunkItems != 0 ? job_.chunkItems : chunkItemsFor(items, workers, call);
    checkOtherShards(fingerprint, most);
    // The journal first: never must it call done what was removed. If this process dies in between,
    // the next run removes the rest: the journal keeps below which number.
    if (!known.empty()) journal_.forgetPlan();
    folder_.removeResults(journal_.removedBelow());
    folder_.removeSchemaOfOtherJob(fingerprint);
    refuseStrangeParts();
    writePlan(planner, most, factsOfPlan(summary, fingerprint));
  }

  void removeDropped() {
    const std::vector<int64_t> dropped = journal_.dropped();
    for (const int64_t chunk : dropped) folder_.removeResultsOf(chunk, parquet_);
    if (!dropped.empty()) journal_.forgetDropped();
  }

  /// Nothing is removed that this job has not planned.
  void refuseStrangeParts() const {
    const auto parts = folder_.parts();
    if (parts.empty()) return;
    throw BatchRefused(
        "output: " + job_.output + " holds " + parts.front().filename().string() +
        (parts.size() > 1 ? " and " + std::to_string(parts.size() - 1) + " more parts" : "") +
        " that no plan in its journal names: the journal is lost or of another "
        "job. Move the parts to another folder, or name another one");
  }

  std::filesystem::path pathOf(const DonePart& part) const {
    return folder_.path() / OutputFolder::partName(part.chunk, parquet_);
  }

  /// Readers of the folder would count it.
  void refuseForeignParts() {
    const std::vector<int64_t> chunks = journal_.chunks();
    const std::set<int64_t> planned(chunks.begin(), chunks.end());
    for (const auto& part : folder_.parts()) {
      if (planned.contains(*OutputFolder::chunkOf(part))) continue;
      throw BatchRefused("output: " + part.string() +
                         " is a part that no plan in the journal names: move it to another folder");
    }
  }

  /// Parts that are gone are made again. Throws BatchRefused if one has changed.
  void checkParts() {
    refuseForeignParts();
    std::vector<int64_t> gone;
    for (const DonePart& part : journal_.doneParts()) {
      std::error_code error;
      const auto bytes = std::filesystem::file_size(pathOf(part), error);
      if (error) {
        gone.push_back(part.chunk);
      } else if (bytes != part.bytes) {
        throw BatchRefused("output: " + pathOf(part).string() + " has " + std::to_string(bytes) +
                           " bytes, and the run wrote " + std::to_string(part.bytes) +
                           ": remove it, and the next run makes it again");
      }
    }
    if (gone.empty()) return;
    journal_.redo(gone);
    partsMadeAgain_ = gone.size();
  }

  /// At the end of a run that is complete.
  void requireParts() {
    refuseForeignParts();
    for (const DonePart& part : journal_.doneParts()) {
      std::error_code error;
      if (std::filesystem::file_size(pathOf(part), error) == part.bytes && !error) continue;
      throw Error(pathOf(part).string() +
                  " was removed or changed during the run: run the job again");
    }
  }

  /// Throws BatchRefused if runs of other shards divide the items in another way, so that some
  /// would be in no part, or in two.
  void checkOtherShards(const std::string& fingerprint, uint32_t most) {
    for (const auto& file : OutputFolder::existingJournals(folder_.path())) {
      if (file == folder_.journal()) continue;
      auto other = Journal::existing(file);
      const std::string known = other.fact("fingerprint");
      if (known.empty()) continue;
      const BatchJob job = jobOf(other.fact("job"));
      const std::string holds = "output: " + job_.output + " holds a run of shard " +
                                std::to_string(job.shard) + " of " + std::to_string(job.shards);
      if (job.shards != job_.shards) throw BatchRefused(holds + ": name another folder");
      if (known != fingerprint) {
        if (job_.force) continue;
        throw BatchRefused(holds + " that differs in the " + changes(known, fingerprint) +
                           ": name another folder, or start each shard anew with --force "
                           "(BatchJob::force)");
      }
      const std::string size = other.fact("items_of_chunk");
      if (size != std::to_string(most)) {
        throw BatchRefused(holds + " with " + size + " items per chunk: choose --chunk-size " +
                           size + " (BatchJob::chunkItems) for each shard");
      }
    }
  }

  /// Chunks of `most` items.
  void writePlan(const Planner& planner, uint32_t most, Facts facts) {
    Planner::Chunks chunks(planner, most);
    int64_t number = 0;
    const auto next = [&]() -> std::optional<PlannedChunk> {
      while (const std::optional<Json> chunk = chunks.next()) {
        const int64_t own = number++;
        if (own % job_.shards != job_.shard) continue;
        return PlannedChunk{own, chunk->at("rows"), base::jsonText(*chunk), {}};
      }
      return std::nullopt;
    };
    facts.emplace_back("items_of_chunk", std::to_string(most));
    journal_.writePlan(next, facts);
  }

  /// Runs the lanes until all is done or the run ends; makes a new pool if the supervisor dies.
  void work() {
    int losses = 0;
    uint64_t doneAtLoss = 0;
    while (true) {
      runLanes();
      if (shared_->error() || shared_->end() || !shared_->takePoolLoss()) return;
      const uint64_t done = shared_->progress().doneNow;
      losses = done > doneAtLoss ? 1 : losses + 1;
      doneAtLoss = done;
      if (losses > kPoolLosses) {
        throw SupervisorLost("the pool's supervisor died " + std::to_string(losses) +
                             " times while no item was completed");
      }
      restarts_ += restartsOfPool_;
      makePool();
    }
  }

  void runLanes() {
    base::Mutex mutex;
    base::Condition ended;
    size_t running = manager_->allInstances().size();
    std::deque<Lane> lanes;
    std::vector<std::thread> threads;
    for (const Interpreter& worker : manager_->allInstances()) {
      Lane& lane = lanes.emplace_back(job_, workerJob_, model_, worker, journal_, *shared_);
      threads.emplace_back([&] {
        lane.run();
        const base::MutexLock lock(mutex);
        --running;
        ended.notify_all();
      });
    }
    base::MutexLock lock(mutex);
    while (running > 0) {
      ended.wait_for(lock, kTick);
      lock.unlock();
      tick();
      if (shared_->ending()) {
        for (const Lane& each : lanes) each.endPreparation();
      }
      lock.lock();
    }
    lock.unlock();
    for (std::thread& thread : threads) thread.join();
  }

  void tick() {
    if (control_.progress) control_.progress(progress());
    if (control_.interrupted && control_.interrupted()) {
      shared_->end(BatchEnd::kInterrupted, "interrupted");
    }
  }

  BatchProgress progress() {
    BatchProgress progress = shared_->progress();
    try {
      const PoolStatistics statistics = manager_->statistics();
      restartsOfPool_ = statistics.workersReplaced;
      memory_ = 0;
      for (const WorkerStatistics& worker : statistics.workers) memory_ += worker.residentBytes;
    } catch (const SupervisorLost&) {
      // The lanes notice it, too.
    }
    progress.restarts = restarts_ + restartsOfPool_;
    progress.memory = memory_;
    progress.elapsed = Clock::now() - began_;
    return progress;
  }

  /// The results of the run as a whole, once no lane runs.
  BatchSummary conclude() {
    BatchSummary summary;
    summary.progress = progress();
    const JournalCounts counts = journal_.counts();
    const auto end = shared_->end();
    if (end) {
      summary.end = *end;
      summary.message = shared_->message();
    } else {
      if (counts.chunksDone != counts.chunks || counts.rows + counts.quarantined != counts.items) {
        throw Error("the journal of " + job_.output + " has " + std::to_string(counts.rows) +
                    " results and " + std::to_string(counts.quarantined) + " failures for " +
                    std::to_string(counts.items) + " items at the end of the run");
      }
      requireParts();
      summary.end = counts.quarantined > 0 ? BatchEnd::kQuarantine : BatchEnd::kAllRight;
      if (partsMadeAgain_ > 0) {
        summary.message = std::to_string(partsMadeAgain_) +
                          (partsMadeAgain_ == 1 ? " part was gone and was made again"
                                                : " parts were gone and were made again");
      }
      folder_.removeWork();
    }
    if (!updated_.empty()) {
      summary.message = updated_ + (summary.message.empty() ? "" : ". " + summary.message);
    }
    if (summary.end != BatchEnd::kDiskFull) {
      writeQuarantine(folder_, journal_.quarantined());
      folder_.write(folder_.named("summary", ".json"), summaryText(summary) + "\n");
    }
    if (control_.progress) control_.progress(summary.progress);
    return summary;
  }

  std::string summaryText(const BatchSummary& summary) {
    const BatchProgress& progress = summary.progress;
    return base::jsonText({{"end", toString(summary.end)},
                           {"message", summary.message},
                           {"items", progress.items},
                           {"done", progress.done},
                           {"quarantined", progress.failed},
                           {"done_in_this_run", progress.doneNow},
                           {"seconds", progress.elapsed.count()},
                           {"chunks", progress.chunks},
                           {"chunks_done", progress.chunksDone},
                           {"workers", manager_->allInstances().size()},
                           {"workers_replaced", progress.restarts},
                           {"parts_made_again", partsMadeAgain_},
                           {"job", storedJob(job_)}});
  }

  const BatchJob job_;
  const BatchControl& control_;
  const std::string workerJob_;
  const bool parquet_;
  const OutputFolder folder_;
  Journal journal_;
  std::unique_ptr<InterpreterManager> manager_;
  std::optional<Package> package_;
  StoredModel model_;
  SharedState* shared_ = nullptr;
  const Clock::time_point began_ = Clock::now();
  std::string updated_;          ///< what BatchJob::update has found, in words
  size_t partsMadeAgain_ = 0;    ///< that an earlier run had written, and that were gone
  uint64_t restarts_ = 0;        ///< of pools that were lost
  uint64_t restartsOfPool_ = 0;  ///< of the present one
  uint64_t memory_ = 0;
};

BatchSummary runTask(const BatchJob& job, const BatchControl& control, Task task) {
  try {
    return Run(job, control).run(task);
  } catch (const DatabaseError& error) {
    // Before the first item or after the last one: the lanes handle it themselves.
    if (!error.diskFull()) throw;
    BatchSummary summary;
    summary.end = BatchEnd::kDiskFull;
    summary.message = error.what();
    return summary;
  }
}

}  // namespace
}  // namespace batch

BatchSummary runBatch(const BatchJob& job, const BatchControl& control) {
  return batch::runTask(job, control, batch::Task::kRun);
}

BatchSummary retryBatch(const std::string& output, const BatchControl& control,
                        const PoolOptions& pool) {
  BatchSummary all;
  for (const auto& [file, text] : batch::plannedJobs(output)) {
    BatchJob job = batch::jobOf(text, &pool);
    job.output = output;
    // Of several shards, one after the other: a later one does not hide how an earlier one ended.
    BatchSummary one = batch::runTask(job, control, batch::Task::kRetry);
    if (one.end >= all.end) all = std::move(one);
    if (all.end > BatchEnd::kQuarantine) break;
  }
  return all;
}

const char* toString(BatchReason reason) {
  switch (reason) {
    case BatchReason::kCrashed:
      return "crashed";
    case BatchReason::kExited:
      return "exited";
    case BatchReason::kMemory:
      return "memory";
    case BatchReason::kTimeout:
      return "timeout";
    case BatchReason::kRaised:
      return "raised";
  }
  return "unknown";
}

const char* toString(BatchEnd end) {
  switch (end) {
    case BatchEnd::kAllRight:
      return "all right";
    case BatchEnd::kQuarantine:
      return "finished with quarantine";
    case BatchEnd::kFailures:
      return "stopped: too many failures";
    case BatchEnd::kInterrupted:
      return "stopped: interrupted";
    case BatchEnd::kDiskFull:
      return "stopped: no room on the disk";
  }
  return "unknown";
}

}  // namespace isopool
