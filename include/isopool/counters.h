// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "isopool/export.h"

namespace isopool {

/// Bytes of tensor payload that were copied between processes, by direction and reason, since this
/// process began. If all values are zero, every tensor crossed without a copy.
struct CopyCounters {
  // Towards a worker.
  uint64_t inputOutsideSharedMemory = 0;  ///< the tensor was not in shared memory
  uint64_t inputInline = 0;               ///< too small to share: part of the request itself
  uint64_t inputOfOtherWorker = 0;        ///< a result of one worker, passed to another
  // Back to the caller.
  uint64_t resultOutsideSharedMemory = 0;  ///< the call did not allocate the memory
  uint64_t resultInline = 0;               ///< part of the answer, or a small stored weight
  uint64_t resultNoLease = 0;              ///< the worker has too many results alive
  uint64_t resultWeightWritten = 0;        ///< a stored weight that the worker has written to
  // In the worker.
  uint64_t keptByModel = 0;  ///< the model kept an input or a result: it has a private copy

  /// The sum of all values.
  uint64_t total() const {
    return inputOutsideSharedMemory + inputInline + inputOfOtherWorker + resultOutsideSharedMemory +
           resultInline + resultNoLease + resultWeightWritten + keptByModel;
  }
};

/// The present values for this process, summed over all managers. Thread-safe; does not wait for a
/// worker.
ISOPOOL_EXPORT CopyCounters copyCounters();

}  // namespace isopool
