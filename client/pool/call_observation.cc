// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/call_observation.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/without_cancellation.h"
#include "client/program/process_fork.h"

namespace isopool {

namespace client {

std::atomic<bool> callsAreObserved{false};

namespace {

using Sinks = std::vector<std::shared_ptr<CallSink>>;

// Never destroyed: calls may end until the process exits.
constinit InheritedSetting<Sinks> currentSinks;

// Removes the sinks for which `isOld` is true, and adds `fresh` unless it is null.
template <typename IsOld>
void changeSinks(IsOld&& isOld, std::shared_ptr<CallSink> fresh) {
  currentSinks.change([&](const auto& current) {
    Sinks sinks = current ? *current : Sinks();
    std::erase_if(sinks, isOld);
    if (fresh) sinks.push_back(std::move(fresh));
    callsAreObserved.store(!sinks.empty(), std::memory_order_relaxed);
    return std::make_shared<const Sinks>(std::move(sinks));
  });
}

int64_t realTime() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

CallKind kindOf(ipc::Operation operation) {
  switch (operation) {
    case ipc::Operation::kCallObject:
    case ipc::Operation::kCallMethod:
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

// Nothing if the call used a parent process's pool in a forked child: it is not recorded.
std::optional<CallOutcome> outcomeOf(const std::exception_ptr& error) {
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
  } catch (const SupervisorLost&) {
    return CallOutcome::kSupervisorLost;
  } catch (const ForkedError&) {
    return std::nullopt;
  } catch (...) {
    return CallOutcome::kRefused;
  }
}

class ObserverSink final : public CallSink {
 public:
  explicit ObserverSink(std::function<void(const CallRecord&)> observer)
      : observer_(std::move(observer)) {}
  void called(const ObservedCall& call) override {
    const base::WithoutCancellation complete;
    try {
      observer_(call.record);
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      // Exceptions of the observer are ignored: the call does not depend on it.
    }
  }

 private:
  const std::function<void(const CallRecord&)> observer_;
};

}  // namespace

void addCallSink(std::shared_ptr<CallSink> sink) {
  changeSinks([](const auto&) { return false; }, std::move(sink));
}

void removeCallSink(const CallSink* sink) {
  changeSinks([&](const auto& each) { return each.get() == sink; }, nullptr);
}

void ObservedCall::sentTo(WorkerLink& channel) {
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

void endObservation(ObservedCall& call, std::exception_ptr error) {
  const auto now = std::chrono::steady_clock::now();
  const bool wasSent = call.sent != std::chrono::steady_clock::time_point();
  call.record.waited = (wasSent ? call.sent : now) - call.start;
  if (wasSent) call.record.inWorker = now - call.sent;
  const auto outcome = outcomeOf(error);
  if (!outcome) return;
  call.record.outcome = *outcome;
  call.ended = realTime();
  call.thread = ::gettid();
  const auto sinks = currentSinks.get();
  if (!sinks) return;
  for (const auto& sink : *sinks) sink->called(call);
}

}  // namespace client

void setCallObserver(std::function<void(const CallRecord&)> observer) {
  client::changeSinks(
      [](const auto& each) { return dynamic_cast<client::ObserverSink*>(each.get()) != nullptr; },
      observer ? std::make_shared<client::ObserverSink>(std::move(observer)) : nullptr);
}

}  // namespace isopool
