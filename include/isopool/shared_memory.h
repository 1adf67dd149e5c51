// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace isopool {

/// An uninitialised CPU tensor in the memory that this process shares with all its workers: passed
/// to a call it crosses without a copy. An ordinary tensor in every other respect; it may outlive
/// all managers. If shared memory is at its limit (ISOPOOL_INPUT_ARENA_LIMIT) it comes from the
/// heap and is copied when passed. Any thread.
at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options = {});

/// True if the tensor's storage lies in memory shared with workers, so that passing it costs no
/// copy.
bool isShared(const at::Tensor& tensor);

/// While it lives, CPU tensors that this thread makes (torch::rand, at::cat, preprocessing code,
/// ...) lie in shared memory as those of empty() do. Nests. Tensors made under it may outlive it.
class SharedMemoryGuard {
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
