// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool {

/// Bytes of tensor payload that were copied on their way, by direction and reason, since the
/// process began. All zero means that everything crossed without a copy.
struct CopyCounters {
  // Towards a worker.
  uint64_t inputOutsideSharedMemory = 0;  ///< the tensor did not lie in shared memory
  uint64_t inputInline = 0;               ///< so small that it travelled in the call itself
  uint64_t inputOfOtherWorker = 0;        ///< a result of one worker, passed to another
  // Back to the caller.
  uint64_t resultOutsideSharedMemory = 0;  ///< memory that the call did not allocate itself
  uint64_t resultInline = 0;               ///< travelled in the answer, or a small stored weight
  uint64_t resultNoLease = 0;              ///< too many results of that worker are alive
  uint64_t resultWeightWritten = 0;        ///< a stored weight that the worker has written to
  // In the worker.
  uint64_t keptByModel = 0;  ///< the model kept an input or a result: it got a private copy

  uint64_t total() const {
    return inputOutsideSharedMemory + inputInline + inputOfOtherWorker + resultOutsideSharedMemory +
           resultInline + resultNoLease + resultWeightWritten + keptByModel;
  }
};

/// A snapshot for this process, over all managers. Any thread.
CopyCounters copyCounters();

}  // namespace isopool
