// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/pool_call.h"

#include <ATen/core/ivalue.h>

#include <utility>

#include "client/pool/call_observation.h"
#include "client/pool/pool_migration.h"
#include "client/pool/worker_steps.h"
#include "ipc/crash_point.h"

namespace isopool::client {

namespace {

[[noreturn]] void throwWithdrawn(const PoolCall& call, const std::string& worker) {
  if (call.cancellation != nullptr && call.cancellation->givenUp()) throw cancelledCall();
  throwNotStartedInTime(worker, "call");
}

// What happens to a worker whose request was abandoned while it ran.
const char* endOf(WorkerLink& channel) {
  if (channel.killPostponed()) {
    return "the worker is killed unless the call ends soon: this program did not run for a part of "
           "the time, which does not count";
  }
  return channel.shared()
             ? "the worker is killed unless the call ends within the supervisor's grace period"
             : "the worker was killed";
}

// The attempts of one call, until a worker has answered it.
class Attempts {
 public:
  Attempts(const PoolCall& call, ObservedCall* record)
      : pool_(*call.object.pool),
        call_(call),
        record_(record),
        preparation_(call.object, call.deadline) {}

  // Nothing if the call is to be tried again: it has not run, or is idempotent.
  std::optional<at::IValue> tryOn(WorkerLink& channel, PoolMigration* migration = nullptr);
  // Nothing if the worker takes no call any more, and the pool has the next supervisor.
  std::optional<Answer> exchange(WorkerLink& channel, RequestDraft& draft,
                                 PoolMigration* migration);
  // True if the call may have run on a worker that died.
  bool started() const { return started_; }
  // When the answer came.
  Clock::time_point ended() const { return ended_; }

 private:
  Pool& pool_;
  const PoolCall& call_;
  ObservedCall* const record_;
  Preparation preparation_;
  bool started_ = false;
  Clock::time_point ended_;
};

// A worker refuses calls when every call that was accepted before the notice of its supervisor's
// end has ended. A call between two attempts is not among these.
std::optional<Answer> Attempts::exchange(WorkerLink& channel, RequestDraft& draft,
                                         PoolMigration* migration) {
  try {
    return channel.exchange(call_.operation, draft, call_.deadline, call_.cancellation, migration);
  } catch (const SupervisorLost&) {
    if (!pool_.awaitNextConnection(channel, call_.deadline, call_.cancellation)) throw;
    pool_.countRerun();
    return std::nullopt;
  }
}

std::optional<at::IValue> Attempts::tryOn(WorkerLink& channel, PoolMigration* migration) {
  if (!preparation_.on(channel, migration)) {
    if (migration == nullptr || !migration->left()) pool_.countRerun();
    return std::nullopt;
  }
  RequestDraft& draft = requestDraft();
  if (!pool_.noKill()) draft.runTime = call_.runTime;
  if (call_.modes) draft.modes = *call_.modes;
  call_.draft(draft);
  draft.flags |= call_.flags;
  if (record_ != nullptr) record_->sentTo(channel);
  const auto began = Clock::now();
  if (migration != nullptr) migration->begin(began);
  auto exchanged = exchange(channel, draft, migration);
  if (!exchanged) return std::nullopt;
  Answer answer = *std::move(exchanged);
  if (record_ != nullptr) record_->answered(answer);
  if (answer.outcome() == RequestOutcome::kNeverStarted) pool_.check();
  if (answer.outcome() == RequestOutcome::kLost) {
    started_ = true;
    if (call_.idempotent && pool_.reconnects()) {
      pool_.check();
    } else {
      pool_.checkSupervisorOf(channel, started_);
    }
  }
  const bool cancelled = call_.cancellation != nullptr && call_.cancellation->givenUp();
  if (migration != nullptr && migration->left() && !cancelled) return std::nullopt;
  switch (retryDecisionFor(answer.outcome(), call_.idempotent, cancelled)) {
    case RetryDecision::kAnswer:
      ended_ = Clock::now();
      pool_.noteServiceTime(ended_ - began);
      try {
        return answer.take();
      } catch (const ObjectUnloaded&) {
        // Another thread unloaded the object after this one had defined it: the call did not run
        // and is tried again from the start.
        channel.definedObjects.remove(call_.object.definition.object);
        return std::nullopt;
      }
    case RetryDecision::kRunElsewhere:
      ipc::reachCrashPoint(ipc::CrashPoint::kCallRerun);
      pool_.countRerun();
      return std::nullopt;
    case RetryDecision::kWorkerLost:
      throw WorkerLost(channel.death(), /*started=*/true);
    case RetryDecision::kNotStarted:
      throwWithdrawn(call_, channel.name());
    default:
      if (cancelled) throw stoppedCall(channel);
      throwOverdue(channel, "call");
  }
}

// Counts a call, as failed unless answered() was called. Null figures: counts nothing.
class CountedCall {
 public:
  explicit CountedCall(ModelFigures* figures) : figures_(figures) {}
  ~CountedCall() {
    if (figures_ != nullptr) figures_->failed();
  }
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;
  void answered(Clock::duration time) {
    if (figures_ != nullptr) std::exchange(figures_, nullptr)->answered(time);
  }

 private:
  ModelFigures* figures_;
};

// Calls `onWorker`, which finds a worker and tries the call there, until it returns an answer.
template <typename OnWorker>
at::IValue untilAnswered(const PoolCall& call, OnWorker&& onWorker) {
  const Pool& pool = *call.object.pool;
  const auto began = Clock::now();
  return observed(pool, call.operation, [&](ObservedCall* record) {
    if (record != nullptr) {
      record->record.model = call.object.definition.name;
      if (call.operation == ipc::Operation::kCallMethod) record->record.method = call.attribute;
      record->record.tag = call.tag;
    }
    CountedCall counted(call.operation == ipc::Operation::kObjectHasAttribute
                            ? nullptr
                            : call.object.figures.get());
    const CallLimit::Call limited(pool.callLimit().get());
    Attempts attempts(call, record);
    try {
      for (;;) {
        if (auto answer = onWorker(attempts)) {
          counted.answered(attempts.ended() - began);
          return *std::move(answer);
        }
      }
    } catch (const SupervisorLost& error) {
      if (error.started() || !attempts.started()) throw;
      throw SupervisorLost(error.what(), /*started=*/true);
    } catch (const DeadlineExceeded& error) {
      if (error.started() || !attempts.started()) throw;
      throw DeadlineExceeded(std::string(error.what()) + "; it had run on a worker that died",
                             /*started=*/true);
    } catch (const ipc::ValueError& error) {
      throw Error(error.what());
    }
  });
}

}  // namespace

Deadline deadlineOf(const Pool& pool, const CallOptions& options) {
  if (!options.deadline || pool.noKill()) return std::nullopt;
  return deadlineAfter(*options.deadline);
}

CallOptions optionsUntil(const Deadline& deadline) {
  CallOptions options;
  if (deadline) options.deadline = *deadline - Clock::now();
  return options;
}

void PoolCall::draft(RequestDraft& draft) const {
  auto& packer = draft.writer.packer();
  if (operation == ipc::Operation::kObjectHasAttribute) {
    packer.pack_array(2).pack(object.definition.object).pack(attribute);
  } else if (operation == ipc::Operation::kCallMethod) {
    packer.pack_array(4).pack(object.definition.object).pack(attribute);
    draftArguments(draft, args, kwargs, deadline);
  } else {
    packer.pack_array(3).pack(object.definition.object);
    draftArguments(draft, args, kwargs, deadline);
  }
}

Cancelled cancelledCall() {
  return Cancelled("the call was cancelled before it started; it will not run");
}

Cancelled stoppedCall(WorkerLink& channel) {
  return Cancelled("the call was stopped while " + channel.name() + " ran it; " + endOf(channel),
                   /*started=*/true);
}

void throwNotStartedInTime(const std::string& worker, const char* what) {
  throw DeadlineExceeded(
      "the deadline passed before " + worker + " started the " + what + "; it will not run",
      /*started=*/false);
}

void throwOverdue(WorkerLink& channel, const char* what) {
  throw DeadlineExceeded(
      "the deadline passed while " + channel.name() + " ran the " + what + "; " + endOf(channel),
      /*started=*/true);
}

bool Preparation::on(WorkerLink& channel, PoolMigration* migration) {
  Pool& pool = *object_.pool;
  try {
    if (!pool.setup().define(channel, object_.definition, deadline_, &object_.replicas,
                             migration)) {
      return false;
    }
    object_.replicas.restore(channel, deadline_);
    return true;
  } catch (const WorkerLost& death) {
    if (!channel.dead() || isLastLoss(death, lost_)) throw;
    pool.checkForRetry(channel);
    return false;
  } catch (const SupervisorLost&) {
    pool.awaitRetry(channel, deadline_);
    return false;
  }
}

at::IValue callOnPool(const PoolCall& call) {
  PoolMigration migration(*call.object.pool, call.accepted);
  return untilAnswered(call, [&](Attempts& attempts) {
    const Pool::WorkerReservation reservation =
        migration.nextReservation(call.deadline, call.cancellation, call.turn);
    return attempts.tryOn(reservation.channel(), &migration);
  });
}

at::IValue callOnPool(PoolCall& call, const std::function<bool()>& interrupted) {
  if (!interrupted) return callOnPool(call);
  CancellationToken token;
  token.stopIf(interrupted);
  call.cancellation = &token;
  return callOnPool(call);
}

at::IValue callOnSlot(const PoolCall& call, WorkerSlot& slot) {
  return untilAnswered(call, [&](Attempts& attempts) {
    const auto channel = call.object.pool->liveChannel(slot, call.deadline);
    return attempts.tryOn(*channel);
  });
}

}  // namespace isopool::client
