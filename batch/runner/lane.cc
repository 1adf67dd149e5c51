// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/lane.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/json.h"
#include "batch/runner/job_text.h"
#include "batch/runner/output_folder.h"

namespace isopool::batch {

namespace {

/// A worker that another program killed is no sign of a bad chunk or model; so many in a row are.
constexpr int kSuspiciousDeaths = 5;
constexpr int kHopelessDeaths = 10;
constexpr int kHopelessPreparations = 5;
constexpr auto kIdentifying = std::chrono::minutes(1);
constexpr int kIdentifyAttempts = 4;
constexpr auto kUnavailablePause = std::chrono::seconds(1);
constexpr int kUnavailablePauses = 300;
/// How much longer a step may take than it should, before its worker is killed.
constexpr double kStepsBeforeLimit = 2;
/// Of the times of files, which the kernel takes from its tick.
constexpr int kClockError = 10;
/// Workers combine a bucket's items from so many calls.
constexpr uint32_t kBatchesPerBucket = 8;

bool isDiskFull(const RemoteError& error) {
  return error.pythonType().find("OSError") != std::string::npos &&
         (error.message().find("[Errno 28]") != std::string::npos ||
          error.message().find("[Errno 122]") != std::string::npos);
}

bool isOutOfDescriptors(const RemoteError& error) {
  return error.pythonType().find("OSError") != std::string::npos &&
         error.message().find("[Errno 24]") != std::string::npos;
}

/// A step has several items only if that delays the end of a hanging one little.
Pace::Seconds stepFor(const BatchJob& job) {
  return job.timeout ? std::min<Pace::Seconds>(Pace::kLongestStep, *job.timeout / 10.0)
                     : Pace::kLongestStep;
}

/// The ID of an item whose worker can't say it: the place in its input.
std::string placeOf(const PlannedChunk& chunk, uint32_t item) {
  const base::Json reference = base::Json::parse(chunk.reference);
  if (reference.contains("paths")) return reference["paths"].at(item);
  return reference.at("label").get<std::string>() + ":" +
         std::to_string(reference.at("row").get<uint64_t>() + item);
}

}  // namespace

Lane::Lane(const BatchJob& job, const std::string& workerJob, const StoredModel& model,
           const Interpreter& worker, Journal& journal, SharedState& shared)
    : job_(job),
      workerJob_(workerJob),
      model_(model),
      worker_(worker),
      journal_(journal),
      shared_(shared),
      parquet_(isParquet(workerJob)),
      itemsOfCall_(std::max<uint32_t>(job.batchSize, 1) *
                   (job.collation == BatchCollation::kBucket ? kBatchesPerBucket : 1)),
      pace_(stepFor(job)) {}

void Lane::run() noexcept {
  try {
    while (const auto number = shared_.take()) {
      Work work = begin(*number);
      if (!complete(work)) shared_.giveBack(*number);
    }
  } catch (const DatabaseError& error) {
    if (error.diskFull()) {
      shared_.end(BatchEnd::kDiskFull, error.what());
    } else {
      shared_.fail(std::current_exception());
    }
  } catch (...) {
    shared_.fail(std::current_exception());
  }
}

void Lane::endPreparation() const noexcept {
  if (!preparing_ || std::getenv("ISOPOOL_SOCKET") != nullptr) return;
  if (const auto process = worker_.processId()) ::kill(*process, SIGKILL);
}

Lane::Work Lane::begin(int64_t number) {
  open_ = false;
  PlannedChunk chunk = journal_.chunk(number);
  ChunkProgress progress(chunk.items, itemsOfCall_, job_.retries);
  if (!chunk.onlyItems.empty()) {
    std::vector<bool> wanted(chunk.items, false);
    for (const base::Json& item : base::Json::parse(chunk.onlyItems)) wanted.at(item) = true;
    for (uint32_t item = 0; item < chunk.items; ++item) {
      if (!wanted[item]) progress.leaveOut(item);
    }
  }
  for (const QuarantinedItem& each : journal_.quarantined(number)) progress.leaveOut(each.item);
  std::string part = OutputFolder::partName(number, parquet_);
  return {std::move(chunk), std::move(part), std::move(progress), {}, {}, {}, {}, 0, false};
}

bool Lane::complete(Work& work) {
  while (!shared_.ending()) {
    try {
      step(work);
      if (work.finished) return true;
    } catch (const WorkerLost& error) {
      // Several lanes may have a session in one worker of a shared supervisor, and other programs
      // calls: one of these has ended it, and that says nothing about this call's items.
      if (work.running && (!error.started() || error.ofOtherProgram())) {
        work.running.reset();
        replaceWorker();
        continue;
      }
      workerDied(work, failureOf(error));
    } catch (const DeadlineExceeded& error) {
      workerDied(work, failureOf(error, job_.timeout.value_or(kIdentifying)));
    } catch (const PoolUnavailable&) {
      waitForPool();
    } catch (const SupervisorLost&) {
      losePool();
    } catch (const RemoteError& error) {
      if (!isDiskFull(error)) throw;
      shared_.end(BatchEnd::kDiskFull,
                  "no room for results in " + job_.output + ": " + error.message());
    }
  }
  // Of a lost pool's chunks the next one counts what it recovers.
  if (shared_.poolLost()) shared_.countDone(-int64_t{work.progress.done()});
  return false;
}

void Lane::waitForPool() {
  calls_.reset();
  open_ = false;
  // No worker has died in this preparation.
  failedPreparations_ = std::max(failedPreparations_ - 1, 0);
  // The supervisor tries again after PoolOptions::quarantine.
  if (++unavailable_ > kUnavailablePauses) throw;
  std::this_thread::sleep_for(kUnavailablePause);
}

void Lane::losePool() {
  calls_.reset();
  open_ = false;
  shared_.losePool();
}

void Lane::step(Work& work) {
  ensureOpen(work);
  if (work.interrupted) {
    blame(work, *std::exchange(work.interrupted, std::nullopt));
    return;
  }
  const auto range = work.progress.next(pace_.items());
  if (!range) {
    finish(work);
    return;
  }
  work.running = range;
  work.began = std::chrono::system_clock::now();
  const auto began = std::chrono::steady_clock::now();
  const uint32_t call = std::min(range->count, itemsOfCall_);
  const CallOptions options = callOptions(call, range->count);
  work.limit = options.runTime.value_or(std::chrono::nanoseconds::zero());
  const auto caught = calls_->run(*range, call, options);
  work.running.reset();
  work.deathsBesideCalls = 0;
  pace_.add(range->count, std::chrono::steady_clock::now() - began);
  const ItemRange right{range->first, caught ? caught->range.first - range->first : range->count};
  const int64_t before = work.progress.done();
  work.progress.succeeded(right);
  const int64_t more = int64_t{work.progress.done()} - before;
  shared_.countDone(more);
  shared_.countComputed(more);
  const bool fresh = std::exchange(fresh_, false);
  if (!caught) return;
  if (caught->whole) {
    const uint32_t end = caught->range.first + caught->range.count;
    for (uint32_t item = caught->range.first; item < end; ++item) {
      if (work.progress.giveUp(item)) setAside(work, item, caught->failure);
    }
  } else if (caught->spoilt && !fresh) {
    // Perhaps it is what earlier items have left in the worker, as memory that is used, or an error
    // on the GPU that shows late. A fresh one tells.
    work.progress.suspect(caught->range);
  } else if (!caught->full) {
    itemsFailed(work, caught->range, caught->failure, caught->item);
  }
  if (caught->spoilt || caught->full) replaceWorker();
}

void Lane::replaceWorker() {
  if (calls_) calls_->leave();
  calls_.reset();
  open_ = false;
}

CallOptions Lane::callOptions(uint32_t call, uint32_t items) const {
  CallOptions options;
  if (!job_.timeout) return options;
  options.runTime = *job_.timeout * call;
  // The items before the one that hangs take their time, too: that of a step by plan, and more.
  if (items > call)
    *options.runTime +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(kStepsBeforeLimit * pace_.step());
  return options;
}

void Lane::ensureOpen(Work& work) {
  // A worker that the supervisor has replaced, because of its memory for example, ends soon.
  if (calls_ && !calls_->isCurrent()) {
    calls_.reset();
    open_ = false;
  }
  if (calls_ && open_) return;
  open_ = false;
  if (!calls_) {
    ++failedPreparations_;
    preparing_ = true;
    try {
      calls_.emplace(worker_, workerJob_, model_, job_.startTimeout);
    } catch (...) {
      preparing_ = false;
      throw;
    }
    preparing_ = false;
    failedPreparations_ = 0;
    unavailable_ = 0;
    fresh_ = true;
  }
  std::vector<uint32_t> leftOut;
  for (const QuarantinedItem& each : journal_.quarantined(work.chunk.number)) {
    leftOut.push_back(each.item);
  }
  const std::vector<ItemRange> recovered = calls_->open(work.chunk, work.part, leftOut);
  const int64_t before = work.progress.done();
  work.progress.opened(recovered);
  shared_.countDone(int64_t{work.progress.done()} - before);
  open_ = true;
}

void Lane::finish(Work& work) {
  WrittenPart part;
  try {
    part = calls_->finish();
  } catch (const RemoteError& error) {
    if (isDiskFull(error)) throw;
    // Items have used up the worker's descriptors: another one recovers the results.
    if (isOutOfDescriptors(error) && work.finishes++ < kHopelessDeaths) return replaceWorker();
    throw BatchRefused("the results of " + work.part + " can't be written: " + error.pythonType() +
                       ": " + error.message());
  }
  if (!part.misfits.empty()) {
    for (const Misfit& misfit : part.misfits) {
      BatchFailure failure;
      failure.phase = "write";
      failure.type = "ValueError";
      failure.message = misfit.reason;
      work.progress.leaveOut(misfit.item);
      shared_.countDone(-1);
      setAside(work, misfit.item, std::move(failure));
    }
    open_ = false;
    return;
  }
  if (!part.types.empty()) {
    open_ = false;
    const int64_t number = work.chunk.number;
    if (const auto types = shared_.computed(number, work.progress.done(), part.types)) {
      freezeSchema(*types);
    } else {
      work.finished = true;  // for now
    }
    return;
  }
  if (parquet_ && part.rows == 0) {
    if (const auto types = shared_.computed(work.chunk.number, 0, {})) freezeSchema(*types);
  }
  journal_.finishChunk(work.chunk.number, part.rows, part.bytes);
  shared_.countChunk();
  work.finished = true;
  open_ = false;
}

void Lane::freezeSchema(const std::vector<std::string>& types) {
  if (!types.empty()) calls_->freezeSchema(journal_.fact("fingerprint"), types);
  shared_.schemaIsKnown();
}

void Lane::workerDied(Work& work, BatchFailure failure) {
  calls_.reset();
  open_ = false;
  if (work.running) {
    const auto now = std::chrono::system_clock::now();
    const auto since = std::max(work.began, lastResult(work.chunk.number));
    // A limit counts the time in which this process ran: what the clock says beyond it was a stop.
    const auto stopped = failure.reason == BatchReason::kTimeout
                             ? std::max(now - work.began - work.limit, std::chrono::nanoseconds(0))
                             : std::chrono::nanoseconds(0);
    work.interrupted = {*std::exchange(work.running, std::nullopt), std::move(failure),
                        now - since - stopped};
    return;
  }
  if (failedPreparations_ >= kHopelessPreparations) {
    throw BatchRefused("the model can't be prepared: " + failure.message + ". " + failure.crashLog);
  }
  if (failedPreparations_ > 0) return;
  ++work.deathsBesideCalls;
  if (work.deathsBesideCalls == kSuspiciousDeaths) work.progress.suspectAll();
  if (work.deathsBesideCalls < kHopelessDeaths) return;
  failure.phase = "read";
  while (const auto range = work.progress.next()) {
    for (uint32_t item = range->first; item < range->first + range->count; ++item) {
      work.progress.leaveOut(item);
      setAside(work, item, failure);
    }
  }
  work.deathsBesideCalls = 0;
}

std::chrono::system_clock::time_point Lane::lastResult(int64_t chunk) const {
  struct stat status {};
  if (::stat(OutputFolder::spill(job_.output, chunk).c_str(), &status) != 0) return {};
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::seconds(status.st_mtim.tv_sec) +
          std::chrono::nanoseconds(status.st_mtim.tv_nsec)));
}

void Lane::blame(Work& work, Interruption interruption) {
  // Items are called in order, and each result is in the spill at once: the first one without a
  // result was the one that ran.
  const auto range = work.progress.next();
  const ItemRange& all = interruption.range;
  if (!range || range->first < all.first || range->first >= all.first + all.count) return;
  const ItemRange call{range->first, std::min(range->count, all.first + all.count - range->first)};
  const bool inTime =
      interruption.failure.reason == BatchReason::kTimeout &&
      interruption.time < *job_.timeout * call.count - std::chrono::milliseconds(kClockError);
  if (inTime) {
    work.progress.suspect(call);
  } else {
    itemsFailed(work, call, std::move(interruption.failure), std::nullopt);
  }
}

void Lane::itemsFailed(Work& work, ItemRange range, BatchFailure failure,
                       std::optional<uint32_t> culprit) {
  const auto given = work.progress.failed(range, culprit);
  if (given) setAside(work, *given, std::move(failure));
}

void Lane::setAside(Work& work, uint32_t item, BatchFailure failure) {
  failure.attempts = std::max<uint32_t>(work.progress.attempts(item), 1);
  const std::optional<base::Json> id = identify(work, item);
  // The next pool, or the next run, calls the item again.
  if (!id) return;
  const std::string text = base::jsonText(*id);
  failure.id = textOfId(text);
  shared_.quarantine({work.chunk.number, item, text, std::move(failure)});
}

std::optional<base::Json> Lane::identify(Work& work, uint32_t item) {
  CallOptions options;
  options.deadline = kIdentifying;
  for (int attempt = 0; attempt < kIdentifyAttempts; ++attempt) {
    try {
      ensureOpen(work);
      return calls_->identify(item, options);
    } catch (const WorkerLost&) {
      // A session that is opened right after a worker was killed may still get that worker.
    } catch (const PoolUnavailable&) {
      // That says nothing about the item.
      --attempt;
      if (shared_.ending()) return std::nullopt;
      waitForPool();
    } catch (const SupervisorLost&) {
      losePool();
      return std::nullopt;
    } catch (const Error&) {
      attempt = kIdentifyAttempts;
    }
    calls_.reset();
    open_ = false;
  }
  // The item kills its reader, too: its place names it as well.
  return placeOf(work.chunk, item);
}

}  // namespace isopool::batch
