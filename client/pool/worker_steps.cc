// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/worker_steps.h"

#include <ATen/core/ivalue.h>

#include "base/without_cancellation.h"
#include "client/pool/call_observation.h"
#include "client/pool/pool_call.h"

namespace isopool {

SessionImpl::~SessionImpl() {
  pool->releaseUser(*slot);
  try {
    if (whenEnded) whenEnded();
  } catch (...) {
    // Exceptions of the callback are ignored: a destructor has no caller to report them to.
  }
}

namespace client {

namespace {

// Notifies the pool of a step's end. Destroyed after the answer, which holds a slot of the channel.
struct StepEnd {
  Pool& pool;
  ~StepEnd() { pool.stepEnded(); }
};

}  // namespace

at::IValue step(Pool& pool, WorkerLink& channel, ipc::Operation operation, RequestDraft& draft,
                const Deadline& deadline) {
  pool.check();
  pool.setup().syncModules(channel, deadline);
  return observed(pool, operation, [&](ObservedCall* record) {
    if (record != nullptr) record->record.tag = draft.tag;
    const CallLimit::Call counted(pool.callLimit().get());
    try {
      if (record != nullptr) record->sentTo(channel);
      const StepEnd end{pool};
      Answer answer = channel.exchange(operation, draft, deadline);
      if (record != nullptr) record->answered(answer);
      switch (answer.outcome()) {
        case RequestOutcome::kAnswered:
          return answer.take();
        case RequestOutcome::kWithdrawn:
          throwNotStartedInTime(channel.name(), "step");
        case RequestOutcome::kOverdue:
          throwOverdue(channel, "step");
        default:
          pool.checkSupervisorOf(channel, answer.outcome() == RequestOutcome::kLost,
                                 "; the session, its Objs and streams are lost with their worker");
          throw WorkerLost(channel.death(), answer.outcome() == RequestOutcome::kLost);
      }
    } catch (const ipc::ValueError& error) {
      throw Error(error.what());
    }
  });
}

std::shared_ptr<SessionImpl> openSession(const std::shared_ptr<Pool>& pool,
                                         const Deadline& deadline, std::shared_ptr<WorkerSlot> slot,
                                         Admission admission) {
  const base::WithoutCancellation complete;
  admission == Admission::kGiven ? pool->check() : pool->admit(deadline);
  if (slot) {
    pool->addUser(*slot);
  } else {
    slot = pool->acquireUser();
  }
  for (int lost = 0;;) {
    std::shared_ptr<WorkerLink> channel;
    try {
      channel = pool->liveChannel(*slot, deadline);
    } catch (...) {
      pool->releaseUser(*slot);
      throw;
    }
    if (channel->workerDied()) {
      channel->markDead();
      std::this_thread::yield();  // another thread may be settling the channel's calls
      continue;
    }
    auto session = std::make_shared<SessionImpl>(pool, slot, channel);
    try {
      pool->setup().configure(slot, *channel, deadline);
      return session;
    } catch (const WorkerLost& death) {
      if (!channel->dead() || isLastLoss(death, lost)) throw;
      pool->addUser(*slot);
    } catch (const SupervisorLost&) {
      pool->awaitRetry(*channel, deadline);
      pool->addUser(*slot);
    }
  }
}

}  // namespace client
}  // namespace isopool
