// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/warm_ups.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/blocked_signals.h"
#include "base/without_cancellation.h"
#include "client/pool/pool.h"
#include "client/pool/pool_call.h"
#include "client/pool/replicated_object.h"
#include "client/pool/warm_up_call.h"
#include "isopool/errors.h"

namespace isopool::client {

uint64_t WarmUps::add(WarmUpCall call) {
  auto shared = std::make_shared<const WarmUpCall>(std::move(call));
  base::MutexLock lock(mutex_);
  calls_.push_back({++last_, std::move(shared)});
  count_.store(calls_.size(), std::memory_order_release);
  return last_;
}

void WarmUps::remove(uint64_t number) {
  base::MutexLock lock(mutex_);
  std::erase_if(calls_, [&](const Entry& each) { return each.number == number; });
  count_.store(calls_.size(), std::memory_order_release);
}

void WarmUps::removeExpired() {
  base::MutexLock lock(mutex_);
  std::erase_if(calls_, [](const Entry& each) { return each.call->object.expired(); });
  count_.store(calls_.size(), std::memory_order_release);
}

void WarmUps::start(std::shared_ptr<WorkerLink> link, std::shared_ptr<WorkerSlot> slot) {
  const base::WithoutCancellation complete;
  std::list<Task> ended;
  base::MutexLock lock(mutex_);
  for (auto task = tasks_.begin(); task != tasks_.end();) {
    const auto next = std::next(task);
    if (task->over.load(std::memory_order_acquire)) ended.splice(ended.end(), tasks_, task);
    task = next;
  }
  if (!closed_ && !calls_.empty()) beginLocked(std::move(link), std::move(slot));
  lock.unlock();
  for (Task& task : ended) task.thread.join();
}

void WarmUps::beginLocked(std::shared_ptr<WorkerLink> link, std::shared_ptr<WorkerSlot> slot) {
  std::erase_if(begun_, [](const Begun& each) { return each.link.expired(); });
  auto begun = std::find_if(begun_.begin(), begun_.end(),
                            [&](const Begun& each) { return each.link.lock() == link; });
  if (begun == begun_.end()) begun = begun_.insert(begun_.end(), {link, 0});
  auto calls = calls_;
  std::erase_if(calls, [&](const Entry& each) { return each.number <= begun->number; });
  if (calls.empty()) return;
  begun->number = calls.back().number;
  Task& task = tasks_.emplace_back();
  task.link = std::move(link);
  task.link->beginWarmUp();
  const base::BlockedSignals blocked;
  try {
    task.thread = std::thread([this, &task, slot = std::move(slot), calls = std::move(calls)] {
      run(*task.link, slot, calls);
      task.over.store(true, std::memory_order_release);
    });
  } catch (const std::exception& error) {
    task.link->endWarmUp();
    pool_.eventLog().write(LogLevel::kWarning, [&] {
      return task.link->name() +
             " serves without a warm-up, no thread can be started: " + error.what();
    });
    tasks_.pop_back();
  }
}

void WarmUps::close() {
  std::list<Task> tasks;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    tasks.splice(tasks.end(), tasks_);
  }
  for (Task& task : tasks) {
    if (task.over.load(std::memory_order_acquire)) continue;
    // A private supervisor's spare may serve another pool later, but not while it makes this call.
    if (task.link->shared()) {
      task.link->markDead();
    } else {
      task.link->kill("the pool for which it was warmed up has ended", /*overdue=*/true);
    }
  }
  for (Task& task : tasks) task.thread.join();
}

void WarmUps::run(WorkerLink& link, const std::shared_ptr<WorkerSlot>& slot,
                  const std::vector<Entry>& calls) {
  for (const Entry& each : calls) {
    if (link.workerDied()) break;
    try {
      call(link, slot, *each.call);
    } catch (const WorkerLost&) {
      break;
    } catch (const SupervisorLost&) {
      break;
    } catch (const std::exception& error) {
      pool_.eventLog().write(LogLevel::kWarning, [&] {
        return link.name() + " serves although its warm-up failed: " + error.what();
      });
    }
  }
  link.endWarmUp();
  pool_.workerIsWarm();
}

void WarmUps::call(WorkerLink& link, const std::shared_ptr<WorkerSlot>& slot,
                   const WarmUpCall& call) {
  const auto object = call.object.lock();
  if (!object) return;
  if (slot) {
    pool_.setup().configure(slot, link, std::nullopt);
    pool_.setup().define(link, object->definition, std::nullopt, &object->replicas);
  } else {
    // Not noted: the first use in a slot defines the object again, which the worker then has.
    RequestDraft& definition = requestDraft();
    draftDefinition(definition, object->definition);
    Answer made = link.exchange(object->definition.operation, definition, std::nullopt);
    if (made.outcome() != RequestOutcome::kAnswered) return;
    made.take();
  }
  PoolCall warmUp(*object, call.args, &call.kwargs);
  warmUp.callMethod(call.method);
  RequestDraft& draft = requestDraft();
  draft.modes = call.modes;
  warmUp.draft(draft);
  // Its result may be of any kind.
  draft.flags |= ipc::kPermissive;
  Answer answer = link.exchange(warmUp.operation, draft, std::nullopt);
  // After a death the replacement is warmed up in place of this worker.
  if (answer.outcome() != RequestOutcome::kAnswered) return;
  try {
    answer.take();
  } catch (const ObjectUnloaded&) {
    // Another thread has unloaded the object.
  } catch (const UnsupportedValue&) {
    // The call has run.
  }
}

}  // namespace isopool::client
