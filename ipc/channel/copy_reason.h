// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool::ipc {

/// Why bytes of a tensor were copied between a client and a worker. The client counts its inputs
/// itself. A worker reports what it copied for a call in the call's answer: the body of a kValue
/// completion is [value, [[reason, bytes]...]]; the inner list is empty if nothing was copied. The
/// numbers are part of the protocol; the client ignores unknown ones.
enum class CopyReason : uint32_t {
  kInputOutsideSharedMemory = 1,  ///< copied once into the client's input arena
  kInputInline,                   ///< small, travelled inside the call
  kInputOfOtherWorker,            ///< lay in another worker's output arena
  kResultOutsideSharedMemory,  ///< made on the worker's heap, or memory of numpy or another channel
  kResultInline,               ///< small, travelled inside the answer
  kKeptByModel,                ///< the worker still refers to it, so each side gets its own copy
  kNoLease,                    ///< no lease was free: travelled inside the answer
  kPackageWritten,             ///< a stored tensor that the worker has written to
  kCount,
};

}  // namespace isopool::ipc
