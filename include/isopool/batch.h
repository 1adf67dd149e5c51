// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isopool/errors.h"
#include "isopool/export.h"
#include "isopool/options.h"

/// Batch jobs: a model is called for each of many inputs, on all workers, whatever the inputs do to
/// it. Link isopool::batch. docs/batch.md describes the files and the command `isopool batch`,
/// which is this function with a command line.
namespace isopool {

/// How the items of one call are combined for a model that takes several.
enum class BatchCollation {
  kList,    ///< a Python list
  kStack,   ///< one tensor with a new first dimension; all items have the same shape
  kPad,     ///< one tensor, padded with zeros to the longest item, and a tensor of the lengths
  kBucket,  ///< as kPad; items of about the same length are in the same call
};

enum class BatchFormat {
  kAsInput,    ///< JSON lines for JSON lines and arrays, Parquet for everything else
  kParquet,    ///< needs pyarrow in the workers' Python, as Parquet inputs do
  kJsonLines,  ///< text, one object per line
};

/// What is to be done. A plain value.
struct BatchJob {
  /// "app.py:embed": a function of this file, or a class, of which each worker makes one instance.
  /// "model.pt:model/model.pkl": an object of a torch.package. "model.onnx", "model.pt2",
  /// "model.ts": see InterpreterManager::loadModel(). "model.pkl": a callable by cloudpickle.
  std::string model;
  /// Tables of one kind, whose rows are the items, also by folders of them alone and by glob
  /// patterns: Parquet; JSON lines and arrays (.jsonl, .ndjson, .json); CSV (.csv, .tsv); tar files
  /// of WebDataset. JSON and CSV may be compressed (.gz, .zst, .bz2, .xz). Folders KEY=VALUE are a
  /// column of the rows. docs/batch.md has the rules. Or any other files, folders and patterns:
  /// each file is an item, the model gets its path. Or one map style dataset, "app.py:data", or
  /// "data.pkl" by cloudpickle.
  std::vector<std::string> inputs;
  /// Each file is an item, also a table. Without it a table among other files is refused, and one
  /// of a kind whose rows are not read.
  bool files = false;
  /// The folder for the results. It is made if it is missing. One run at a time uses it.
  std::string output;

  std::string preprocess;  ///< "app.py:decode", called for each item before the model; may be empty
  std::string postprocess;  ///< the same, for each result; may be empty
  std::string column;       ///< the model gets this field of each row, not the whole row
  /// 0: the model gets one item. Else a list of up to so many, and it returns as many results. At
  /// most 1,000,000.
  uint32_t batchSize = 0;
  BatchCollation collation = BatchCollation::kList;
  BatchFormat format = BatchFormat::kAsInput;
  /// The types of the columns of Parquet parts: a Parquet file that has them, or "app.py:NAME", a
  /// pyarrow.Schema or a function that returns one. Empty: those of the results of the first, the
  /// middle and the last chunk, and of more chunks up to 100 results. An item whose result does not
  /// fit is set aside.
  std::string schema;

  /// The time that one item may take. An item that takes longer counts as failed, and its worker is
  /// killed. None: no limit.
  std::optional<std::chrono::milliseconds> timeout;
  /// The time in which a worker must have made the model: imports, weights. The job is refused if
  /// it takes longer.
  std::chrono::milliseconds startTimeout{std::chrono::minutes(60)};
  /// How often an item that failed alone is tried again before it is set aside.
  uint32_t retries = 1;
  /// Ends the run when more items than this are set aside, ...
  std::optional<uint64_t> maxFailures;
  /// ... or when more than this share (0 to 1) of the items that have an outcome is, counted from
  /// 100 items on.
  std::optional<double> maxFailureShare;

  /// Items of one chunk, so of one part file. 0: as many as give each worker 16 chunks, 5000 at
  /// most.
  uint32_t chunkItems = 0;
  /// This run does only the chunks whose number, modulo `shards`, is `shard`: 0 to shards - 1. Runs
  /// of different shards may share the output folder.
  uint32_t shard = 0;
  uint32_t shards = 1;
  /// Where the folder holds a run of the same job whose input files were fewer, or others: does
  /// those that are new or have changed, a table as a whole. Results of chunks that have changed
  /// files go and are made again; results of files that were removed stay, and the summary's
  /// message counts them. Not for datasets and shards. Without it such inputs are refused.
  bool update = false;
  /// Removes what an earlier run with another model, arguments or inputs has left in the folder.
  bool force = false;

  PoolOptions pool;
};

/// Why an item has no result.
enum class BatchReason {
  kCrashed,  ///< its worker was killed by a signal
  kExited,   ///< its worker exited by itself
  kMemory,   ///< there was no memory for it
  kTimeout,  ///< it took longer than BatchJob::timeout
  kRaised,   ///< Python code raised an exception
};
/// "crashed", "exited", "memory", "timeout", "raised".
ISOPOOL_EXPORT const char* toString(BatchReason reason);

/// An item that was set aside.
struct BatchFailure {
  std::string id;
  BatchReason reason = BatchReason::kRaised;
  std::string phase;      ///< "read", "preprocess", "model", "postprocess", "write", or empty
  int signal = 0;         ///< of kCrashed
  int exitCode = 0;       ///< of kExited
  std::string type;       ///< the exception's class, of kRaised and kMemory
  std::string message;    ///< one line
  std::string traceback;  ///< as Python prints it
  std::string crashLog;   ///< of a worker that died: its last output, and its Python stack
  uint32_t attempts = 0;  ///< how often it was tried
};

struct BatchProgress {
  uint64_t items = 0;     ///< of this run's shard
  uint64_t done = 0;      ///< have a result, those of earlier runs included
  uint64_t failed = 0;    ///< set aside, those of earlier runs included
  uint64_t doneNow = 0;   ///< have got a result in this run
  uint64_t restarts = 0;  ///< workers that were replaced
  uint64_t chunks = 0;    ///< of this run's shard
  uint64_t chunksDone = 0;
  uint64_t memory = 0;  ///< bytes that the workers use, by PoolStatistics
  std::chrono::duration<double> elapsed{};
};

/// How a run ended.
enum class BatchEnd {
  kAllRight,     ///< each item has a result
  kQuarantine,   ///< each item has a result or is set aside
  kFailures,     ///< more items were set aside than maxFailures allows; the rest was not tried
  kInterrupted,  ///< as BatchControl::interrupted asked
  kDiskFull,     ///< no room for results; a later run goes on
};

/// "all right", "finished with quarantine", "stopped: ...".
ISOPOOL_EXPORT const char* toString(BatchEnd end);

struct BatchSummary {
  BatchEnd end = BatchEnd::kAllRight;
  BatchProgress progress;
  std::string message;  ///< one line: what happened, and what to do
};

/// The caller's part in a run. All members may be empty. They are called on the thread that called
/// runBatch(), except for `failure`, which is called on others, one call at a time.
struct BatchControl {
  /// Ten times per second, and at the end.
  std::function<void(const BatchProgress&)> progress;
  /// For each item that is set aside.
  std::function<void(const BatchFailure&)> failure;
  /// Asked ten times per second. After true the items in flight are completed, and the run ends.
  std::function<bool()> interrupted;
};

/// Runs the job and returns when each item has a result or is set aside, or when the run is ended
/// before. If the folder holds an earlier run of the same job, goes on with that: what is done is
/// not done again. A part file appears whole or not at all, and contains an item once. The process
/// and the machine may die at any instant: the next run loses nothing of what was done, except for
/// the chunks in flight.
///
/// Throws BatchRefused if the job is wrong, the model can't be loaded, the folder is in use, or the
/// folder holds another job; Error and the exceptions of InterpreterManager's constructor
/// otherwise. Thread-safe for different folders.
ISOPOOL_EXPORT BatchSummary runBatch(const BatchJob& job, const BatchControl& control = {});

/// Runs the items that `output` has set aside again, with the present code of the model: after a
/// correction. The job is that of the folder, with the options of its pool where `pool` leaves them
/// at their defaults; the values of PoolOptions::variables are not stored and have to be given
/// again. Throws as runBatch().
ISOPOOL_EXPORT BatchSummary retryBatch(const std::string& output, const BatchControl& control = {},
                                       const PoolOptions& pool = {});

/// The job can't be run as it is. The text says what to change. No result was changed.
class ISOPOOL_EXPORT BatchRefused : public Error {
 public:
  using Error::Error;
};

}  // namespace isopool
