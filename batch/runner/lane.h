// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "batch/plan/chunk_progress.h"
#include "batch/plan/pace.h"
#include "batch/runner/shared_state.h"
#include "batch/runner/worker_calls.h"
#include "isopool/batch.h"
#include "isopool/isopool.h"

namespace isopool::batch {

/// One worker's part in a run: takes one chunk after the other and does it, on a thread of its own.
/// The worker may die at any time; the lane goes on with its replacement, and the chunk with the
/// results that the dead one has left in __job__/work/.
///
///   event                             | consequence
///   ----------------------------------|-------------------------------------------------------
///   the call of several items fails   | bisected: ChunkProgress
///   an item fails more than `retries` | set aside, with its ID
///   the worker dies in a step         | the replacement opens the chunk; the first item without
///                                     | a result has failed
///   the worker dies beside a step     | the replacement opens the chunk; after five times in a
///                                     | row each item is called alone, after ten all are set
///                                     | aside
///   a worker's memory is used up      | a fresh one takes its place between two calls
///   an item gets no memory, or an     | it is called again by itself in a fresh worker, and has
///   error of the GPU                  | failed if it gets the same there
/// the columns have no types yet | the chunk waits in __job__/work/, the lane goes on with others
///   no room on the disk               | the run ends with kDiskFull
///   all workers are in quarantine     | the lane waits until one more is tried
///   the model can't be prepared       | the run fails
///   the supervisor dies               | the run goes on with a new pool
class Lane {
 public:
  Lane(const BatchJob& job, const std::string& workerJob, const StoredModel& model,
       const Interpreter& worker, Journal& journal, SharedState& shared);

  /// Until no chunk is left or the run ends. Does not throw.
  void run() noexcept;
  /// If the model is being made in a worker of this program, which may take long, ends that worker.
  /// Any thread, when the run ends.
  void endPreparation() const noexcept;

 private:
  /// A step whose worker died. `time`: how long its last item had run, without the time in which
  /// this process did not run itself.
  struct Interruption {
    ItemRange range;
    BatchFailure failure;
    std::chrono::system_clock::duration time{};
  };
  /// One chunk that this lane does.
  struct Work {
    PlannedChunk chunk;
    std::string part;
    ChunkProgress progress;
    std::optional<ItemRange> running;             ///< the items of the step in flight
    std::chrono::system_clock::time_point began;  ///< that step
    std::chrono::nanoseconds limit{};             ///< of that step
    std::optional<Interruption> interrupted;      ///< a step whose worker died
    int deathsBesideCalls = 0;                    ///< in a row
    int finishes = 0;                             ///< that failed for lack of descriptors
    bool finished = false;
  };

  Work begin(int64_t number);
  /// False if the run ends before the chunk does.
  bool complete(Work& work);
  /// To be called while PoolUnavailable is handled: throws it again if it has come too often.
  void waitForPool();
  /// The run goes on with a new pool.
  void losePool();
  void step(Work& work);
  void ensureOpen(Work& work);
  void finish(Work& work);
  /// Makes the types of the columns known, if these decide them.
  void freezeSchema(const std::vector<std::string>& types);
  void workerDied(Work& work, BatchFailure failure);
  /// Finds out which items of an interrupted step failed, once a worker has opened the chunk again.
  void blame(Work& work, Interruption interruption);
  /// When a worker last wrote a result of the chunk.
  std::chrono::system_clock::time_point lastResult(int64_t chunk) const;
  void itemsFailed(Work& work, ItemRange range, BatchFailure failure,
                   std::optional<uint32_t> culprit);
  void setAside(Work& work, uint32_t item, BatchFailure failure);
  /// The item's ID, or its place if the item kills its readers; nothing if the pool is lost, or has
  /// no worker when the run ends.
  std::optional<base::Json> identify(Work& work, uint32_t item);
  void replaceWorker();
  CallOptions callOptions(uint32_t call, uint32_t items) const;

  const BatchJob& job_;
  const std::string& workerJob_;
  const StoredModel& model_;
  const Interpreter& worker_;
  Journal& journal_;
  SharedState& shared_;
  const bool parquet_;
  const uint32_t itemsOfCall_;
  Pace pace_;
  std::optional<WorkerCalls> calls_;
  std::atomic<bool> preparing_{false};
  int failedPreparations_ = 0;  ///< workers that died while they prepared the model, in a row
  int unavailable_ = 0;         ///< how often the pool had no worker, in a row
  bool fresh_ = false;          ///< the worker of calls_ has made no call yet
  bool open_ = false;           ///< calls_ has opened the present chunk
};

}  // namespace isopool::batch
