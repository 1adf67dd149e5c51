// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/worker_calls.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/units.h"

namespace isopool::batch {

namespace {

using base::Json;

constexpr const char* kModule = "isopool_batch.calls";

/// For steps that run no code of the user's and take milliseconds, or that import the model.
CallOptions within(std::chrono::milliseconds time) {
  CallOptions options;
  options.deadline = time;
  return options;
}
constexpr auto kFileWork = std::chrono::minutes(10);

std::string textOf(const Obj& result) { return result.toIValue().toStringRef(); }

void refuseChange(const std::string& change) {
  if (change.empty()) return;
  throw BatchRefused("the inputs changed during the run: " + change +
                     ". Restore them and run the job again, or start anew with --force");
}

BatchReason reasonOf(const std::string& word) {
  return word == "memory" ? BatchReason::kMemory : BatchReason::kRaised;
}

std::string signalName(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

/// Of a worker that ended itself, or was killed, because it got no memory.
bool namesMemory(const std::string& crashLog) {
  for (const char* sign : {"std::bad_alloc", "MemoryError", "an't allocate memory",
                           "annot allocate memory", "out of memory"}) {
    if (crashLog.find(sign) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

WorkerCalls::WorkerCalls(const Interpreter& worker, const std::string& job,
                         const StoredModel& model, std::chrono::milliseconds limit)
    : worker_(worker), job_(job), session_(worker.acquireSession(within(kFileWork))) {
  processId_ = worker.processId();
  try {
    if (model) {
      const Obj object = model->toObj(&session_, within(limit));
      const Obj set =
          session_.global(kModule, "set_model").call({text(job_), object}, within(limit));
    }
    const Obj prepared =
        session_.global(kModule, "prepare").call({at::IValue(job_)}, {}, within(limit));
  } catch (const RemoteError& error) {
    throw BatchRefused("the model can't be prepared: " + error.pythonType() + ": " +
                       error.message() + "\n" + error.traceback());
  } catch (const DeadlineExceeded&) {
    throw BatchRefused(
        "the model can't be prepared: it took longer than " +
        base::spellQuantity(static_cast<uint64_t>(limit.count()), base::kTimeUnits, " ") +
        " (--start-timeout, BatchJob::startTimeout)");
  }
}

Obj WorkerCalls::text(const std::string& text) { return session_.fromIValue(at::IValue(text)); }

bool WorkerCalls::isCurrent() const { return worker_.processId() == processId_; }

std::vector<ItemRange> WorkerCalls::open(const PlannedChunk& chunk, const std::string& part,
                                         const std::vector<uint32_t>& leftOut) {
  Json described{{"number", chunk.number}, {"part", part}, {"skip", leftOut}};
  // As text: the reference of a chunk of files is long, and C++ does not look into it.
  std::string json = base::jsonText(described);
  json.pop_back();
  if (!chunk.onlyItems.empty()) json += ",\"items\":" + chunk.onlyItems;
  json += ",\"ref\":" + chunk.reference + "}";
  chunk_ = session_.global(kModule, "open_chunk")
               .call({at::IValue(job_), at::IValue(json)}, {}, within(kFileWork));
  const Obj change = chunk_.attr("prepare").call(std::vector<at::IValue>{}, {}, within(kFileWork));
  refuseChange(textOf(change));
  run_ = chunk_.attr("run");
  std::vector<ItemRange> recovered;
  const Obj finished = chunk_.attr("finished").call(std::vector<at::IValue>{}, {}, {});
  for (const Json& range : Json::parse(textOf(finished))) {
    recovered.push_back({range.at(0), range.at(1)});
  }
  return recovered;
}

std::optional<CaughtFailure> WorkerCalls::run(ItemRange range, uint32_t call,
                                              const CallOptions& options) {
  const Obj result = run_.call({at::IValue(int64_t{range.first}), at::IValue(int64_t{range.count}),
                                at::IValue(int64_t{call})},
                               {}, options);
  const std::string answer = textOf(result);
  if (answer.empty()) return std::nullopt;
  const Json json = Json::parse(answer);
  CaughtFailure caught;
  if (json.at("reason") == "full") {
    caught.full = true;
    caught.range = {json.at("first"), 0};
    return caught;
  }
  if (json.at("reason") == "changed") refuseChange(json.at("message"));
  caught.range = {json.at("first"), json.at("count")};
  caught.spoilt = json.at("spoilt");
  caught.whole = json.at("whole");
  caught.failure.reason = reasonOf(json.at("reason"));
  caught.failure.phase = json.at("phase");
  caught.failure.type = json.at("type");
  caught.failure.message = json.at("message");
  caught.failure.traceback = json.at("traceback");
  if (!json.at("item").is_null()) caught.item = json.at("item").get<uint32_t>();
  return caught;
}

void WorkerCalls::leave() {
  try {
    const Obj left =
        session_.global(kModule, "leave").call(std::vector<at::IValue>{}, {}, within(kFileWork));
  } catch (const WorkerLost&) {
    // As asked.
  }
}

WrittenPart WorkerCalls::finish() {
  const Obj result = chunk_.attr("finish").call(std::vector<at::IValue>{}, {}, within(kFileWork));
  const Json json = Json::parse(textOf(result));
  if (json.contains("misfits")) {
    WrittenPart none;
    for (const Json& misfit : json.at("misfits")) {
      none.misfits.push_back({misfit.at(0), misfit.at(1)});
    }
    return none;
  }
  if (json.contains("changed")) refuseChange(json.at("changed"));
  if (json.contains("types")) return {{}, json.at("types"), 0, 0};
  chunk_ = run_ = Obj();
  return {{}, {}, json.at("rows"), json.at("bytes")};
}

void WorkerCalls::freezeSchema(const std::string& fingerprint,
                               const std::vector<std::string>& types) {
  const Obj done = session_.global(kModule, "freeze_schema")
                       .call({at::IValue(job_), at::IValue(fingerprint), at::IValue(types)}, {},
                             within(kFileWork));
}

Json WorkerCalls::identify(uint32_t item, const CallOptions& options) {
  return Json::parse(
      textOf(chunk_.attr("identify").call({at::IValue(int64_t{item})}, {}, options)));
}

BatchFailure failureOf(const WorkerLost& error) {
  BatchFailure failure;
  failure.signal = error.signal();
  failure.exitCode = error.exitCode();
  failure.crashLog = error.crashLog();
  failure.reason = namesMemory(failure.crashLog) ? BatchReason::kMemory
                   : failure.signal != 0         ? BatchReason::kCrashed
                                                 : BatchReason::kExited;
  failure.message = failure.signal != 0
                        ? std::string("the worker was killed by ") + signalName(failure.signal)
                        : "the worker exited with code " + std::to_string(failure.exitCode);
  return failure;
}

BatchFailure failureOf(const DeadlineExceeded&, std::chrono::milliseconds time) {
  BatchFailure failure;
  failure.reason = BatchReason::kTimeout;
  failure.message =
      "took longer than " +
      base::spellQuantity(static_cast<uint64_t>(time.count()), base::kTimeUnits, " ") +
      ", and its worker was killed";
  return failure;
}

}  // namespace isopool::batch
