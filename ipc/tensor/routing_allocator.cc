// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/tensor/routing_allocator.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>

namespace isopool::ipc {

namespace {

thread_local BlockSource* threadSource = nullptr;

constexpr size_t kMaxOwners = 4;
std::array<std::atomic<BlockOwner*>, kMaxOwners> owners;
std::atomic<c10::DeleterFnPtr> heapDeleter{nullptr};

// The context of every block we hand out is its address, so that one deleter serves blocks and heap.
void deleteRouted(void* data) {
  for (const auto& entry : owners) {
    BlockOwner* owner = entry.load(std::memory_order_acquire);
    if (owner == nullptr) break;
    if (owner->ownsBlock(data)) {
      owner->freeBlock(data);
      return;
    }
  }
  heapDeleter.load(std::memory_order_relaxed)(data);
}

class RoutingAllocator final : public c10::Allocator {
 public:
  explicit RoutingAllocator(c10::Allocator* heap) : heap_(heap) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (threadSource != nullptr && bytes >= kSmallestBlockBytes) {
      if (void* block = threadSource->allocateBlock(bytes)) {
        return {block, block, &deleteRouted, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return heap_->allocate(bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &deleteRouted; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }

 private:
  c10::Allocator* heap_;
};

}  // namespace

void installRoutingAllocator(BlockOwner& owner) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  size_t count = 0;
  while (count < kMaxOwners && owners[count].load() != nullptr) {
    if (owners[count].load() == &owner) return;
    ++count;
  }
  if (count == kMaxOwners) throw std::logic_error("too many owners of tensor blocks");
  owners[count].store(&owner, std::memory_order_release);
  if (count > 0) return;
  c10::Allocator* heap = c10::GetAllocator(c10::DeviceType::CPU);
  heapDeleter.store(heap->raw_deleter());
  // Storages remember their allocator, so it lives for ever.
  static auto* routing = new RoutingAllocator(heap);
  c10::SetAllocator(c10::DeviceType::CPU, routing, /*priority=*/255);
}

ScopedBlockSource::ScopedBlockSource(BlockSource* source) : previous_(threadSource) {
  threadSource = source;
}

ScopedBlockSource::~ScopedBlockSource() { threadSource = previous_; }

}  // namespace isopool::ipc
