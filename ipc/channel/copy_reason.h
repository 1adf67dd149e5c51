// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool::ipc {

/// Why bytes of a tensor were copied on their way between a client and a worker. The client counts
/// the inputs itself; a worker appends what it copied for a call to its answer: the body of a
/// kValue completion is [value, [[reason, bytes]...]], and the inner list is empty when nothing was
/// copied.
enum class CopyReason : uint32_t {
  kInputOutsideSharedMemory = 1,  ///< copied once into the client's input arena
  kInputInline,                   ///< small, travelled inside the call
  kInputOfOtherWorker,            ///< lay in another worker's output arena
  kResultOutsideSharedMemory,  ///< made on the worker's heap, or memory of numpy or another channel
  kResultInline,               ///< small, travelled inside the answer
  kKeptByModel,                ///< the worker still refers to it, so each side has its own
  kNoLease,                    ///< all leases were out: travelled inside the answer
  kPackageWritten,             ///< a stored tensor that the worker has written to
  kCount,
};

}  // namespace isopool::ipc
