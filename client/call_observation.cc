// SPDX-License-Identifier: BSD-3-Clause
#include "client/call_observation.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace isopool {

namespace client {

std::atomic<bool> callsAreObserved{false};

namespace {

using Sinks = std::vector<std::shared_ptr<CallSink>>;

// Never destroyed: calls end until the process is gone.
struct SinkHolder {
  std::mutex mutex;
  std::shared_ptr<const Sinks> sinks = std::make_shared<Sinks>();

  static SinkHolder& instance() {
    static auto* const one = new SinkHolder;
    return *one;
  }
  // Needs mutex.
  void set(Sinks fresh) {
    callsAreObserved.store(!fresh.empty(), std::memory_order_relaxed);
    sinks = std::make_shared<const Sinks>(std::move(fresh));
  }
};

int64_t realTime() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

CallKind kindOf(ipc::Operation operation) {
  switch (operation) {
    case ipc::Operation::kCallObject:
      return CallKind::kCall;
    case ipc::Operation::kCallHandle:
      return CallKind::kObjCall;
    case ipc::Operation::kAttribute:
    case ipc::Operation::kHasAttribute:
    case ipc::Operation::kObjectHasAttribute:
    case ipc::Operation::kGlobal:
      return CallKind::kAttribute;
    case ipc::Operation::kToValue:
    case ipc::Operation::kFromValue:
      return CallKind::kValue;
    case ipc::Operation::kNext:
      return CallKind::kStreamItem;
    default:
      return CallKind::kOther;
  }
}

CallOutcome outcomeOf(const std::exception_ptr& error) {
  if (!error) return CallOutcome::kReturned;
  try {
    std::rethrow_exception(error);
  } catch (const RemoteError&) {
    return CallOutcome::kRaised;
  } catch (const WorkerLost&) {
    return CallOutcome::kWorkerLost;
  } catch (const DeadlineExceeded&) {
    return CallOutcome::kDeadlineExceeded;
  } catch (const Cancelled&) {
    return CallOutcome::kCancelled;
  } catch (...) {
    return CallOutcome::kRefused;
  }
}

class ObserverSink final : public CallSink {
 public:
  explicit ObserverSink(std::function<void(const CallRecord&)> observer)
      : observer_(std::move(observer)) {}
  void called(const ObservedCall& call) override {
    try {
      observer_(call.record);
    } catch (...) {
      // The call is not to blame.
    }
  }

 private:
  const std::function<void(const CallRecord&)> observer_;
};

}  // namespace

void addCallSink(std::shared_ptr<CallSink> sink) {
  SinkHolder& holder = SinkHolder::instance();
  std::lock_guard lock(holder.mutex);
  Sinks fresh = *holder.sinks;
  fresh.push_back(std::move(sink));
  holder.set(std::move(fresh));
}

void removeCallSink(const CallSink* sink) {
  SinkHolder& holder = SinkHolder::instance();
  std::shared_ptr<const Sinks> old;  // ends outside the lock: what it holds is a user's function
  std::lock_guard lock(holder.mutex);
  old = holder.sinks;
  Sinks fresh = *old;
  std::erase_if(fresh, [&](const auto& each) { return each.get() == sink; });
  holder.set(std::move(fresh));
}

void ObservedCall::sentTo(Channel& channel) {
  sent = std::chrono::steady_clock::now();
  const auto place = channel.place();
  record.worker = place ? static_cast<int>(place->slot) : -1;
  record.processId = channel.processId();
  record.epoch = channel.epoch().value;
  record.sequence = 0;
}

void ObservedCall::answered(const Answer& answer) { record.sequence = answer.sequence(); }

void beginObservation(ObservedCall& call, const Pool& pool, ipc::Operation operation) {
  call.record.kind = kindOf(operation);
  call.pool = &pool;
  call.began = realTime();
  call.start = std::chrono::steady_clock::now();
}

void endObservation(ObservedCall& call, std::exception_ptr error) noexcept {
  const auto now = std::chrono::steady_clock::now();
  const bool wasSent = call.sent != std::chrono::steady_clock::time_point();
  call.record.waited = (wasSent ? call.sent : now) - call.start;
  if (wasSent) call.record.inWorker = now - call.sent;
  call.record.outcome = outcomeOf(error);
  call.ended = realTime();
  call.thread = ::gettid();
  std::shared_ptr<const Sinks> sinks;
  {
    std::lock_guard lock(SinkHolder::instance().mutex);
    sinks = SinkHolder::instance().sinks;
  }
  for (const auto& sink : *sinks) sink->called(call);
}

}  // namespace client

void setCallObserver(std::function<void(const CallRecord&)> observer) {
  static std::mutex mutex;
  static std::shared_ptr<client::CallSink> current;
  auto fresh = observer ? std::make_shared<client::ObserverSink>(std::move(observer)) : nullptr;
  std::lock_guard lock(mutex);
  if (current) client::removeCallSink(current.get());
  current = fresh;
  if (fresh) client::addCallSink(std::move(fresh));
}

}  // namespace isopool
