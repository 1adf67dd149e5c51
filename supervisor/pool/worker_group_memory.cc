// SPDX-License-Identifier: BSD-3-Clause
// The part of WorkerGroup that watches the memory of its workers.
#include "supervisor/pool/worker_group.h"

namespace isopool::supervisor {

std::vector<MemoryWatch::Subject> WorkerGroup::watchedWorkers() const {
  std::vector<MemoryWatch::Subject> subjects;
  for (const auto& [epoch, worker] : workers_) {
    if (worker->stage() != Worker::Stage::kReady) continue;
    subjects.push_back({epoch, worker->pid(), worker->runningClient() != 0});
  }
  return subjects;
}

void WorkerGroup::memoryBeyondLimit(base::Epoch epoch, const std::string& why) {
  Worker* worker = find(epoch);
  if (worker == nullptr || worker->stage() == Worker::Stage::kDying) return;
  // Before the kill: the caller reads the log as soon as the worker is dead.
  noteInCrashLog(worker->crashLog(), "isopool: the supervisor killed this worker: " + why);
  loseWorker(*worker, DeathCause::kMemoryLimit, why);
}

}  // namespace isopool::supervisor
