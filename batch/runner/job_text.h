// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "base/json.h"
#include "isopool/batch.h"

namespace isopool::batch {

/// Where a model is, by its text in BatchJob::model.
struct ModelSource {
  enum class Kind {
    kFile,    ///< `name` of a Python file
    kPickle,  ///< a callable by cloudpickle
    kStored,  ///< a file for loadModel(), or for loadPackage() with `name`: MODULE/RESOURCE
  };
  Kind kind = Kind::kFile;
  std::string path;  ///< absolute
  std::string name;
};

/// Throws BatchRefused if the text is no model or the file is missing.
ModelSource modelSource(const std::string& text);

/// The job as the workers read it (batch/worker/isopool_batch/job.py), with absolute paths. Throws
/// BatchRefused, which names the wrong member and what is right.
std::string workerJob(const BatchJob& job);
/// The format of the results of such a job: Parquet, or JSON lines.
bool isParquet(const std::string& workerJob);
/// The journal's fact that has the inputs of the plan, in the form of workerJob().
inline constexpr const char* kInputFact = "input";

/// All members of the job but `output`, `update` and `force`, for the journal: what retryBatch()
/// needs. Paths are absolute. Of `pool`: storedPool().
base::Json storedJob(const BatchJob& job);
/// The reverse; for a retry with what poolOf() and requireVariables() say of its options. Throws
/// BatchRefused if the text is not such a job.
BatchJob jobOf(const std::string& text, const PoolOptions* retry = nullptr);

}  // namespace isopool::batch
