// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "isopool/export.h"

namespace isopool {

/// An uninitialised, strided CPU tensor in the memory that this process shares with all its
/// workers. A call transfers it without a copy. `sizes` counts elements, as in at::empty; any
/// dtype. In every other respect it is an ordinary tensor, and it may outlive all managers. A call
/// lends the memory to its worker: while the call runs, each side sees what the other side writes,
/// and if the worker writes by an operation in place, the tensor's version moves, so that autograd
/// notices it. A forked child has a private copy (ISOPOOL_FORK_COPY_LIMIT;
/// docs/memory-and-lifetimes.md).
///
/// If shared memory has reached its limit (ISOPOOL_INPUT_ARENA_LIMIT) or the system refuses more,
/// the tensor comes from the heap and is copied when it is passed; the first such tensor is logged
/// with the cause (setLogger()). If its storage is resized, it moves to the heap, too. Throws
/// c10::Error for another device or layout. Thread-safe.
ISOPOOL_EXPORT at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options = {});

/// True if the tensor's storage is in memory shared with workers: input memory (isopool::empty), or
/// the result of a call. An undefined tensor is not shared, and none that a forked child has from
/// its parent. A result is copied if it is passed to
/// another worker than the one that returned it. Thread-safe.
ISOPOOL_EXPORT bool isShared(const at::Tensor& tensor);

/// Returns the memory that this process shares with its workers and that is free now to the system.
/// That happens by itself when the memory has been free for 2 to 4 seconds, except for 8 MiB that
/// stay for the next tensors. Returns the bytes that this process has given back; its workers give
/// back what they have free for results when no call of theirs runs, soon after this returns. The
/// next tensors cost new memory. Memory in use is not affected. Thread-safe.
ISOPOOL_EXPORT uint64_t trimSharedMemory();

/// While an object of this class exists, CPU tensors that its thread creates (torch::rand, at::cat,
/// code that prepares inputs) are allocated in shared memory, as isopool::empty() does. Tensors
/// below 64 bytes come from the heap. Guards nest. Tensors may outlive the guard.
///
/// Acts on the thread that constructs it; destroy it on the same thread.
class ISOPOOL_EXPORT SharedMemoryGuard {
 public:
  SharedMemoryGuard();
  ~SharedMemoryGuard();
  SharedMemoryGuard(const SharedMemoryGuard&) = delete;
  SharedMemoryGuard& operator=(const SharedMemoryGuard&) = delete;

 private:
  struct Scope;
  std::unique_ptr<Scope> scope_;
};

}  // namespace isopool
