// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool_call.h"

#include "client/call_observation.h"
#include "client/worker_steps.h"

namespace isopool::client {

namespace {

/// A call until a worker has answered it.
class RunningCall {
 public:
  RunningCall(const ReplicatedObjImpl& object, const PoolCall& call, const Fill& fill,
              ObservedCall* record)
      : object_(object), pool_(*object.pool), call_(call), fill_(fill), record_(record) {}

  at::IValue onPool() {
    for (;;) {
      Pool::Turn turn = pool_.acquireTurn(call_.deadline);
      if (auto answer = tryOn(turn.channel())) return *std::move(answer);
    }
  }

  at::IValue onSlot(WorkerSlot& slot) {
    for (;;) {
      const auto channel = pool_.liveChannel(slot, call_.deadline);
      if (auto answer = tryOn(*channel)) return *std::move(answer);
    }
  }

 private:
  // Nothing if it has not run and is to be tried again.
  std::optional<at::IValue> tryOn(Channel& channel);
  bool prepare(Channel& channel);
  bool recalled() const { return call_.recall != nullptr && call_.recall->requested(); }
  [[noreturn]] void throwWithdrawn(const std::string& worker) const;

  const ReplicatedObjImpl& object_;
  Pool& pool_;
  const PoolCall& call_;
  const Fill& fill_;
  ObservedCall* const record_;
  int lost_ = 0;
};

void RunningCall::throwWithdrawn(const std::string& worker) const {
  if (recalled()) throw Cancelled("the call was cancelled before it started; it will not run");
  throw DeadlineExceeded(
      "the deadline passed before " + worker + " started the call; it will not run",
      /*started=*/false);
}

// False if the worker died of it.
bool RunningCall::prepare(Channel& channel) {
  try {
    pool_.define(channel, object_.definition, call_.deadline, &object_.lives);
    object_.lives.restore(channel, call_.deadline);
    return true;
  } catch (const WorkerLost&) {
    if (!channel.dead() || ++lost_ == kMostLostInPreparation) throw;
    pool_.checkAfterDeath();
    return false;
  }
}

std::optional<at::IValue> RunningCall::tryOn(Channel& channel) {
  if (!prepare(channel)) {
    pool_.countRerun();
    return std::nullopt;
  }
  RequestDraft& draft = requestDraft();
  if (call_.modes) draft.modes = *call_.modes;
  fill_(draft);
  if (call_.permissive) draft.flags |= ipc::kPermissive;
  if (record_ != nullptr) record_->sentTo(channel);
  const auto began = Clock::now();
  Answer answer = channel.exchange(call_.operation, draft, call_.deadline, call_.recall);
  if (record_ != nullptr) record_->answered(answer);
  switch (answer.fate()) {
    case Fate::kAnswered:
      pool_.noteServiceTime(Clock::now() - began);
      try {
        return answer.take();
      } catch (const ObjectUnloaded&) {
        // Between our definition and our call: it did not run, and is tried again from the start.
        pool_.forget(channel, object_.definition.object);
        return std::nullopt;
      }
    case Fate::kNeverStarted:
      pool_.check();
      if (recalled()) throwWithdrawn("");
      pool_.countRerun();
      return std::nullopt;
    case Fate::kLost:
      pool_.checkAfterDeath();
      if (call_.idempotent) {
        pool_.countRerun();
        return std::nullopt;
      }
      throw WorkerLost(channel.death(), /*started=*/true);
    case Fate::kWithdrawn:
      throwWithdrawn(channel.name());
    default:
      throw DeadlineExceeded(
          "the deadline passed while " + channel.name() + " ran the call; that worker was killed",
          /*started=*/true);
  }
}

// Under observation, with one family of errors.
template <typename Run>
at::IValue runCall(const ReplicatedObjImpl& object, const PoolCall& call, const Fill& fill,
                   const Run& run) {
  return observed(*object.pool, call.operation, [&](ObservedCall* record) {
    try {
      RunningCall running(object, call, fill, record);
      return run(running);
    } catch (const ipc::ValueError& error) {
      throw Error(error.what());
    }
  });
}

}  // namespace

Deadline deadlineOf(const Pool& pool, const CallOptions& options) {
  if (!options.deadline || pool.noKill()) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(*options.deadline);
}

at::IValue callOnPool(const ReplicatedObjImpl& object, const PoolCall& call, const Fill& fill) {
  return runCall(object, call, fill, [](RunningCall& running) { return running.onPool(); });
}

at::IValue callOnSlot(const ReplicatedObjImpl& object, WorkerSlot& slot, const PoolCall& call,
                      const Fill& fill) {
  return runCall(object, call, fill, [&](RunningCall& running) { return running.onSlot(slot); });
}

}  // namespace isopool::client
