// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "client/pool/async_executor.h"
#include "client/pool/pool.h"
#include "client/program/process_fork.h"
#include "client/transport/death_text.h"
#include "client/transport/input_arena.h"

namespace isopool::client {

namespace {

// Needs the pool's mutex, which guards the slot.
WorkerStatistics describe(const WorkerSlot& slot) {
  WorkerStatistics worker;
  worker.index = slot.index;
  worker.callsInFlight = slot.inFlight;
  worker.sessions = slot.users - std::min(slot.users, slot.inFlight);
  worker.restarts = slot.restarts;
  worker.completedCalls = slot.completedBefore;
  worker.quarantine = slot.quarantine;
  if (slot.lastDeath) {
    worker.lastSignal = slot.lastDeath->signal;
    worker.lastExitCode = slot.lastDeath->exitCode;
    worker.lastDeath = deathText(*slot.lastDeath);
  }
  if (slot.channel) {
    WorkerMemory& memory = slot.channel->memory();
    worker.completedCalls += memory.end().completedCalls();
    if (!slot.lost && !slot.channel->dead()) {
      worker.state = slot.channel->warmingUp()  ? WorkerStatistics::State::kWarmingUp
                     : slot.channel->cleansUp() ? WorkerStatistics::State::kCleaningUp
                                                : WorkerStatistics::State::kServing;
      const uint32_t awaited = slot.channel->awaited();
      worker.stepsInFlight = awaited - std::min(awaited, slot.inFlight);
      worker.processId = slot.channel->processId();
      worker.epoch = slot.channel->epoch().value;
      worker.outputBytes = memory.capacityBytes();
      worker.outputBytesLent = memory.lentBytes();
      worker.outputBlocksLent = memory.lentBlocks();
      return worker;
    }
  }
  if (!slot.quarantine.empty()) worker.state = WorkerStatistics::State::kQuarantined;
  return worker;
}

}  // namespace

PoolStatistics Pool::statistics() {
  checkNotForked(generation_);
  PoolStatistics statistics;
  std::vector<std::shared_ptr<WorkerLink>> links;
  {
    base::MutexLock lock(mutex_);
    // Figures are wanted most while there is no supervisor.
    if (closed_ || !reconnects()) checkLocked();
    statistics.connected = lost_.empty();
    for (const auto& slot : slots_) {
      statistics.workers.push_back(describe(*slot));
      links.push_back(slot->channel);
    }
    statistics.callersWaiting = waiters_.size();
    if (executor_) statistics.asyncCallsQueued = executor_->queued();
  }
  statistics.models = models_.statistics();
  for (size_t i = 0; i < links.size(); ++i) {
    WorkerStatistics& worker = statistics.workers[i];
    // describe() found no living worker.
    if (worker.processId == 0) continue;
    worker.runningFor = links[i]->runningFor();
    worker.residentBytes = links[i]->residentBytes();
    worker.models = contents_.loadedIn(*links[i]);
    for (ModelStatistics& model : statistics.models) {
      if (std::binary_search(worker.models.begin(), worker.models.end(), model.name)) {
        ++model.workers;
      }
    }
  }
  statistics.callsRerun = callsRerun();
  statistics.workersReplaced = workersReplaced();
  statistics.reconnects = reattached();
  statistics.inputBytes = InputArena::instance().heldBytes();
  statistics.inputBytesInUse = InputArena::instance().bytesInUse();
  statistics.inputLargestFreeBlock = InputArena::instance().largestFreeBlock();
  statistics.copied = copyCounters();
  return statistics;
}

}  // namespace isopool::client
