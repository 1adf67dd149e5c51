// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/tensor/routing_allocator.h"

#include <atomic>
#include <cstring>

#include "base/mutex.h"

namespace isopool::ipc {

namespace {

thread_local BlockSource* threadSource = nullptr;

// Owners and their entries are never destroyed. A forked child adds its own entry to the entries of
// its parents.
struct OwnerEntry {
  BlockOwner* owner;
  const OwnerEntry* older;
};
std::atomic<const OwnerEntry*> newestOwner{nullptr};
std::atomic<c10::DeleterFnPtr> heapDeleter{nullptr};

// Deletes blocks and heap memory: the context of both is the address. So tensors from before and
// after a resize have the same deleter.
void deleteRouted(void* data) {
  for (const OwnerEntry* entry = newestOwner.load(std::memory_order_acquire); entry != nullptr;
       entry = entry->older) {
    if (entry->owner->ownsBlock(data)) {
      entry->owner->freeBlock(data);
      return;
    }
  }
  heapDeleter.load(std::memory_order_relaxed)(data);
}

class RoutingAllocator final : public c10::Allocator {
 public:
  explicit RoutingAllocator(c10::Allocator* heap) : heap_(heap) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (void* block = allocateRouted(bytes)) {
      return {block, block, &deleteRouted, c10::Device(c10::DeviceType::CPU)};
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

bool isHeapMemory(const c10::DataPtr& data) noexcept {
  const c10::DeleterFnPtr deleter = heapDeleter.load(std::memory_order_relaxed);
  return deleter != nullptr && data.get_deleter() == deleter;
}

void installRoutingAllocator(BlockOwner& owner) {
  static base::Mutex mutex;
  base::MutexLock lock(mutex);
  const OwnerEntry* const newest = newestOwner.load();
  for (const OwnerEntry* entry = newest; entry != nullptr; entry = entry->older) {
    if (entry->owner == &owner) return;
  }
  newestOwner.store(new OwnerEntry{&owner, newest}, std::memory_order_release);
  if (newest != nullptr) return;
  c10::Allocator* heap = c10::GetAllocator(c10::DeviceType::CPU);
  heapDeleter.store(heap->raw_deleter());
  // Never destroyed, because storages keep a pointer to their allocator.
  static auto* routing = new RoutingAllocator(heap);
  c10::SetAllocator(c10::DeviceType::CPU, routing, /*priority=*/255);
}

void* allocateRouted(size_t bytes) noexcept {
  if (threadSource == nullptr || bytes < kSmallestBlockBytes) return nullptr;
  return threadSource->allocateBlock(bytes);
}

ScopedBlockSource::ScopedBlockSource(BlockSource* source) : previous_(threadSource) {
  threadSource = source;
}

ScopedBlockSource::~ScopedBlockSource() { threadSource = previous_; }

}  // namespace isopool::ipc
