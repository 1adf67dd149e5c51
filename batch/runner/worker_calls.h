// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "batch/journal/journal.h"
#include "batch/plan/chunk_progress.h"
#include "isopool/isopool.h"

namespace isopool::batch {

/// The model of a job where every worker can get it, if it is an isopool object; else empty, and
/// each worker imports it.
using StoredModel = std::optional<ReplicatedObj>;

/// A call that failed by an exception which the worker caught. `item`: if it named the item.
/// `spoilt`: later calls of this worker may fail for the same cause, as after an error on a GPU.
/// `whole`: calls of some of the items say nothing about them: the model has returned a wrong
/// number of results. With `full` the call was not made: the worker has used up most of its memory,
/// and should leave. Neither with `changed`: the input is not the planned one, and the message says
/// where.
struct CaughtFailure {
  bool full = false;
  bool changed = false;
  bool spoilt = false;
  bool whole = false;
  BatchFailure failure;
  ItemRange range;
  std::optional<uint32_t> item;
};

/// An item whose result does not fit into the columns of the job, and why.
struct Misfit {
  uint32_t item = 0;
  std::string reason;
};
/// What a finished chunk has left. With misfits nothing was written: without these items it can be.
/// With types neither: the types of the job's columns are not known, and these are its own.
struct WrittenPart {
  std::vector<Misfit> misfits;
  std::string types;
  uint64_t rows = 0;
  uint64_t bytes = 0;
};

/// The Python side of a job in one worker (batch/worker/isopool_batch/calls.py). Every member is a
/// step of the worker's session: it throws WorkerLost, DeadlineExceeded, RemoteError,
/// PoolUnavailable and SupervisorLost. After WorkerLost and DeadlineExceeded the object is of no
/// use. Used by one thread.
class WorkerCalls {
 public:
  /// Opens a session on this worker and prepares the model there; throws BatchRefused if that
  /// raises an exception or takes longer than `limit`. The references must outlive the object.
  WorkerCalls(const Interpreter& worker, const std::string& job, const StoredModel& model,
              std::chrono::milliseconds limit);

  /// False if another worker has the slot now: this one was replaced and ends soon.
  bool isCurrent() const;
  /// Opens a chunk; returns the items whose results an earlier worker has left. Throws BatchRefused
  /// if the input has changed.
  std::vector<ItemRange> open(const PlannedChunk& chunk, const std::string& part,
                              const std::vector<uint32_t>& leftOut);
  /// Calls the model for these items of the open chunk, `call` of them after the other. No value:
  /// all have a result. Else the first call that failed: those before it have results, those behind
  /// it were not made.
  std::optional<CaughtFailure> run(ItemRange range, uint32_t call, const CallOptions& options);
  /// Ends the worker, so that a fresh one takes its place. The object is of no use afterwards.
  void leave();
  /// Writes the part of the open chunk.
  WrittenPart finish();
  /// Makes the types of the job's columns known to all workers; these are those of some chunks.
  void freezeSchema(const std::string& fingerprint, const std::vector<std::string>& types);
  /// The ID of an item of the open chunk: a number or a text.
  base::Json identify(uint32_t item, const CallOptions& options);

 private:
  Obj text(const std::string& text);

  const Interpreter& worker_;
  const std::string& job_;
  InterpreterSession session_;
  std::optional<int> processId_;
  Obj chunk_;
  Obj run_;
};

/// What is known of an item whose worker died or was killed.
BatchFailure failureOf(const WorkerLost& error);
BatchFailure failureOf(const DeadlineExceeded& error, std::chrono::milliseconds time);

}  // namespace isopool::batch
