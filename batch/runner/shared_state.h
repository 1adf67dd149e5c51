// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "batch/journal/journal.h"
#include "batch/plan/failure_limit.h"
#include "batch/plan/schema_sample.h"
#include "isopool/batch.h"

namespace isopool::batch {

/// What the lanes of a run share: which chunks are left, what has been done, and whether to go on.
/// Thread-safe.
class SharedState {
 public:
  /// `needsSchema`: the types of the columns are not known yet.
  SharedState(Journal& journal, FailureLimit limit, const BatchControl& control, bool needsSchema);

  /// The next chunk, or none: all are taken or the run ends. Waits while the last ones are computed
  /// that decide the types of the columns, because parts of others can't be written before.
  std::optional<int64_t> take();
  /// Gives a chunk back that was not finished.
  void giveBack(int64_t chunk);

  /// A chunk is computed, and its part can't be written before the types of the columns are known;
  /// or it has no rows: `items` is 0. Returns what decides the types if it is complete: then they
  /// are to be made known. Else keeps a chunk with rows for a later take().
  std::optional<std::vector<std::string>> computed(int64_t chunk, int64_t items, std::string types);
  /// The types of the columns are known.
  void schemaIsKnown();

  /// So many items of a chunk have a result now; fewer, if a worker's results were lost.
  void countDone(int64_t items);
  /// So many items were called with success in this run.
  void countComputed(int64_t items) { computed_ += items; }
  void countChunk() { ++chunksDone_; }
  /// Writes the item into the journal, tells the caller, and ends the run if these are too many.
  void quarantine(const QuarantinedItem& item);

  /// True if the run has failed because each of the first items did, with the same reason.
  bool mistaken() const { return mistaken_; }

  /// Ends the run after the items in flight. The first reason counts.
  void end(BatchEnd end, const std::string& message);
  /// Ends the run: runBatch() throws this.
  void fail(std::exception_ptr error);
  /// The supervisor is gone: the lanes end, and the run goes on with a new pool.
  void losePool() { poolLost_ = true; }

  bool ending() const { return ending_ || poolLost_; }
  bool poolLost() const { return poolLost_; }
  /// Whether a lane has ended because of that since the last question.
  bool takePoolLoss() { return poolLost_.exchange(false); }
  std::exception_ptr error();
  std::optional<BatchEnd> end();
  std::string message();
  BatchProgress progress() const;

 private:
  void endIfAllFailAlike(const BatchFailure& failure, uint64_t failed);

  Journal& journal_;
  const FailureLimit limit_;
  const BatchControl& control_;
  std::atomic<bool> ending_{false};
  std::atomic<bool> poolLost_{false};
  std::atomic<bool> mistaken_{false};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> anyResult_{false};  ///< some item has, or had, one
  std::atomic<int64_t> computed_{0};
  std::atomic<uint64_t> failed_{0};
  std::atomic<uint64_t> chunksDone_{0};
  uint64_t items_ = 0;
  uint64_t chunks_ = 0;

  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<int64_t> left_ ISOPOOL_GUARDED_BY(mutex_);
  std::optional<SchemaSample> sample_ ISOPOOL_GUARDED_BY(mutex_);  ///< until the types are known
  /// Chunks that are computed and wait for the types, with their items that were counted as done.
  std::map<int64_t, int64_t> waiting_ ISOPOOL_GUARDED_BY(mutex_);
  std::exception_ptr error_ ISOPOOL_GUARDED_BY(mutex_);
  std::optional<BatchEnd> end_ ISOPOOL_GUARDED_BY(mutex_);
  std::string message_ ISOPOOL_GUARDED_BY(mutex_);
  bool alike_ ISOPOOL_GUARDED_BY(mutex_) = true;  ///< all items that failed, by causeOf()
  std::string cause_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool::batch
