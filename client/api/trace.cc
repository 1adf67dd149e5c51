// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/trace.h"
#include "base/mutex.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "base/json.h"
#include "base/without_cancellation.h"
#include "client/pool/call_observation.h"
#include "client/pool/interpreter_access.h"
#include "client/pool/pool.h"
#include "client/program/process_fork.h"
#include "isopool/interpreter_manager.h"

namespace isopool {

namespace {

constexpr const char* kModule = "isopool_worker.tracing";

const char* titleOf(CallKind kind) {
  switch (kind) {
    case CallKind::kCall:
      return "call";
    case CallKind::kObjCall:
      return "call of an Obj";
    case CallKind::kAttribute:
      return "attribute";
    case CallKind::kValue:
      return "value";
    case CallKind::kStreamItem:
      return "stream item";
    default:
      return "step";
  }
}

const char* nameOf(CallOutcome outcome) {
  switch (outcome) {
    case CallOutcome::kReturned:
      return "returned";
    case CallOutcome::kRaised:
      return "raised";
    case CallOutcome::kWorkerLost:
      return "worker lost";
    case CallOutcome::kDeadlineExceeded:
      return "deadline exceeded";
    case CallOutcome::kCancelled:
      return "cancelled";
    default:
      return "refused";
  }
}

std::string threadName(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/comm");
  std::string name;
  std::getline(file, name);
  return name.empty() ? "ended" : name;
}

/// The pools that have a Trace.
struct TracedPools {
  base::Mutex mutex;
  std::set<const client::Pool*> pools ISOPOOL_GUARDED_BY(mutex);
};
constinit client::PerProcess<TracedPools> tracedPools;

/// The only right to trace a pool.
class TraceRight {
 public:
  explicit TraceRight(const client::Pool& pool) : pool_(pool) {
    TracedPools& traced = tracedPools.get();
    const base::MutexLock lock(traced.mutex);
    if (!traced.pools.insert(&pool_).second) throw Error("the manager already has a Trace");
  }
  ~TraceRight() {
    TracedPools& traced = tracedPools.get();
    const base::MutexLock lock(traced.mutex);
    traced.pools.erase(&pool_);
  }
  TraceRight(const TraceRight&) = delete;
  TraceRight& operator=(const TraceRight&) = delete;

 private:
  const client::Pool& pool_;
};

class Recorder final : public client::CallSink {
 public:
  explicit Recorder(const client::Pool* pool) : pool_(pool) {}
  void called(const client::ObservedCall& call) override {
    if (call.pool != pool_) return;
    const base::MutexLock lock(mutex_);
    calls_.push_back(call);
  }
  std::vector<client::ObservedCall> take() {
    const base::MutexLock lock(mutex_);
    return std::move(calls_);
  }

 private:
  const client::Pool* const pool_;
  base::Mutex mutex_;
  std::vector<client::ObservedCall> calls_ ISOPOOL_GUARDED_BY(mutex_);
};

class EventWriter {
 public:
  EventWriter(std::ofstream& file, int64_t base) : file_(file), base_(base) {
    file_ << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  }
  void end() { file_ << "\n]}\n"; }

  void add(const std::string& events) {
    if (events.empty()) return;
    if (any_) file_ << ",\n";
    any_ = true;
    file_ << events;
  }
  void addName(const char* what, pid_t thread, const std::string& name) {
    add({{"ph", "M"},
         {"name", what},
         {"pid", ::getpid()},
         {"tid", thread},
         {"args", {{"name", name}}}});
  }
  void addCall(const client::ObservedCall& call) {
    const CallRecord& record = call.record;
    const std::string id = std::to_string(record.epoch) + ":" + std::to_string(record.sequence);
    add({{"ph", "X"},
         {"cat", "isopool"},
         {"name", titleOf(record.kind)},
         {"pid", ::getpid()},
         {"tid", call.thread},
         {"ts", microseconds(call.began - base_)},
         {"dur", microseconds(call.ended - call.began)},
         {"args",
          {{"call", id},
           {"worker", record.worker},
           {"worker pid", record.processId},
           {"waited us", microseconds(record.waited.count())},
           {"in worker us", microseconds(record.inWorker.count())},
           {"outcome", nameOf(record.outcome)}}}});
    if (record.sequence == 0) return;
    add({{"ph", "s"},
         {"cat", "isopool"},
         {"name", "call"},
         {"id", id},
         {"pid", ::getpid()},
         {"tid", call.thread},
         {"ts", microseconds(call.began - base_)}});
  }

 private:
  void add(const base::Json& event) { add(base::jsonText(event)); }
  static double microseconds(int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) / 1000;
  }

  std::ofstream& file_;
  const int64_t base_;
  bool any_ = false;
};

}  // namespace

class TraceImpl {
 public:
  explicit TraceImpl(InterpreterManager& manager) {
    const base::WithoutCancellation complete;
    for (const Interpreter& each : manager.allInstances()) {
      slots_.push_back(InterpreterAccess::slot(each));
    }
    pool_ = slots_.front()->pool.lock();
    if (!pool_) throw Error("the InterpreterManager that this belongs to is gone");
    right_.emplace(*pool_);
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    base_ = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    std::vector<std::future<uint64_t>> started;
    for (const auto& slot : slots_) {
      started.push_back(std::async(std::launch::async, [this, &slot] { return start(slot); }));
    }
    std::exception_ptr failure;
    for (auto& each : started) {
      try {
        links_.push_back(each.get());
      } catch (...) {
        links_.push_back(0);
        failure = std::current_exception();
      }
    }
    if (failure) {
      for (size_t i = 0; i < links_.size(); ++i) stop(i);
      std::rethrow_exception(failure);
    }
    recorder_ = client::makeForThisProcess<Recorder>(pool_.get());
    client::addCallSink(recorder_);
  }
  ~TraceImpl() {
    if (!recorder_) return;
    const base::WithoutCancellation complete;
    client::removeCallSink(recorder_.get());
    for (size_t i = 0; i < links_.size(); ++i) stop(i);
  }
  TraceImpl(const TraceImpl&) = delete;
  TraceImpl& operator=(const TraceImpl&) = delete;

  void write(const std::string& path) {
    const base::WithoutCancellation complete;
    client::checkNotForked(generation_);
    if (!recorder_) throw Error("a Trace can be written only once");
    client::removeCallSink(recorder_.get());
    const auto calls = std::exchange(recorder_, nullptr)->take();
    std::ofstream file(path, std::ios::trunc);
    EventWriter events(file, base_);
    events.addName("process_name", 0, "callers");
    std::map<pid_t, bool> threads;
    for (const client::ObservedCall& call : calls) {
      if (threads.emplace(call.thread, true).second) {
        events.addName("thread_name", call.thread, threadName(call.thread));
      }
      events.addCall(call);
    }
    for (size_t i = 0; i < links_.size(); ++i) events.add(stop(i));
    events.end();
    file.flush();
    if (!file) throw Error("the trace can't be written to " + path);
  }

 private:
  uint64_t start(const std::shared_ptr<WorkerSlot>& slot) {
    InterpreterSession session = InterpreterAccess::make(slot).acquireSession();
    session.global(kModule, "start")(at::ArrayRef<at::IValue>{});
    const auto channel = pool_->currentLink(*slot);
    return channel ? channel->number() : 0;
  }

  // The events that a worker recorded; none if the worker was replaced or can't answer.
  std::string stop(size_t index) {
    const auto& slot = slots_[index];
    try {
      const auto channel = pool_->currentLink(*slot);
      if (!channel || channel->number() != links_[index]) return {};
      InterpreterSession session = InterpreterAccess::make(slot).acquireSession();
      return session.global(kModule, "stop")({at::IValue(base_), at::IValue(channel->name())})
          .toIValue()
          .toStringRef();
    } catch (const Error&) {
      return {};
    }
  }

  const uint32_t generation_ = client::forkGeneration();
  std::vector<std::shared_ptr<WorkerSlot>> slots_;
  std::vector<uint64_t> links_;  // to the workers that record: WorkerLink::number()
  std::shared_ptr<client::Pool> pool_;
  std::optional<TraceRight> right_;
  int64_t base_ = 0;
  std::shared_ptr<Recorder> recorder_;
};

Trace::Trace(InterpreterManager& manager) : impl_(std::make_unique<TraceImpl>(manager)) {}
Trace::~Trace() = default;

void Trace::write(const std::string& path) { impl_->write(path); }

}  // namespace isopool
