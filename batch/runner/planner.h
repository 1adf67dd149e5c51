// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "batch/journal/journal.h"
#include "isopool/isopool.h"

namespace isopool::batch {

/// As the worker reads it: isopool_batch.growth.Known.
base::Json knownJson(const KnownChunk& chunk);

/// What a worker says of the inputs: batch/worker/isopool_batch/planner.py. Used by one thread; the
/// session must live longer. Members throw RemoteError, which has the reason, and WorkerLost.
class Planner {
 public:
  Planner(InterpreterSession& session, const std::string& workerJob);

  /// {"items": n, "fingerprint": {...}}.
  base::Json summary() const;

  /// The chunks in order.
  class Chunks {
   public:
    /// Of at most `rows` items each.
    Chunks(const Planner& planner, uint32_t rows);
    /// Empty at the end.
    std::optional<base::Json> next();

   private:
    const Obj method_;
    const uint32_t rows_;
    std::deque<base::Json> answer_;
    int64_t asked_ = 0;
  };

  /// Compares the present inputs with those that the chunks of a plan were of, `before` in the form
  /// of workerJob()'s input. Chunks gives what the plan lacks from now on. Returns
  /// {"new": {"count": n, "examples": [names]}, "changed": ..., "removed": ...}.
  base::Json grow(const std::string& before, const std::vector<KnownChunk>& known,
                  PlanGrowth& growth) const;

  /// The deadline of a call: inputs may be large, and disks slow.
  static CallOptions patience();

 private:
  Obj planner_;
};

}  // namespace isopool::batch
