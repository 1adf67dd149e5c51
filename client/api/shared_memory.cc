// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/shared_memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>

#include <atomic>

#include "client/program/process_fork.h"
#include "client/transport/input_arena.h"
#include "client/transport/worker_memory.h"
#include "ipc/tensor/routing_allocator.h"

namespace isopool {

namespace {

// Installs the routing allocator at the first use; it is never removed. A forked child adds an
// arena of its own.
void installOnce() {
  static std::atomic<const client::InputArena*> installed{nullptr};
  client::InputArena& arena = client::InputArena::instance();
  if (installed.load(std::memory_order_acquire) == &arena) return;
  ipc::installRoutingAllocator(arena);
  installed.store(&arena, std::memory_order_release);
}

}  // namespace

struct SharedMemoryGuard::Scope {
  ipc::ScopedBlockSource source{&client::InputArena::instance()};
};

SharedMemoryGuard::SharedMemoryGuard() {
  installOnce();
  scope_ = std::make_unique<Scope>();
}

SharedMemoryGuard::~SharedMemoryGuard() = default;

at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  TORCH_CHECK(options.device().is_cpu(), "isopool::empty makes CPU tensors, not ", options.device(),
              " ones");
  TORCH_CHECK(options.layout() == c10::kStrided, "isopool::empty makes strided tensors only");
  installOnce();
  // The routing allocator takes such small blocks from the heap, but the user wants shared memory.
  const auto itemBytes = static_cast<int64_t>(options.dtype().itemsize());
  const int64_t bytes = c10::multiply_integers(sizes) * itemBytes;
  if (bytes > 0 && bytes < static_cast<int64_t>(ipc::kSmallestBlockBytes)) {
    client::NoBlock why;
    auto storage = client::InputArena::instance().makeStorage(static_cast<size_t>(bytes), why);
    if (!storage) client::InputArena::instance().logOrdinaryMemory(static_cast<size_t>(bytes), why);
    if (storage) {
      at::Tensor tensor = at::empty({0}, options.requires_grad(false));
      tensor.set_(*storage, 0, sizes);
      return tensor.set_requires_grad(options.requires_grad());
    }
  }
  const ipc::ScopedBlockSource source(&client::InputArena::instance());
  return at::empty(sizes, options);
}

bool isShared(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cpu()) return false;
  const client::LentBlock* lent = client::lentBlockOf(tensor.storage());
  return client::InputArena::instance().ownsBlock(tensor.storage().data()) ||
         (lent != nullptr && lent->generation == client::forkGeneration());
}

uint64_t trimSharedMemory() { return client::InputArena::instance().trim(); }

}  // namespace isopool
