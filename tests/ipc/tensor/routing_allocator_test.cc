// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/tensor/routing_allocator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace isopool::ipc {
namespace {

/// A source of heap blocks that counts them.
class CountedBlocks : public BlockSource, public BlockOwner {
 public:
  void* allocateBlock(size_t bytes) noexcept override {
    std::lock_guard lock(mutex_);
    if (exhausted) return nullptr;
    void* block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    live_.insert(block);
    ++allocations;
    return block;
  }
  bool ownsBlock(const void* data) const noexcept override {
    std::lock_guard lock(mutex_);
    return live_.count(const_cast<void*>(data)) == 1;
  }
  void freeBlock(void* data) noexcept override {
    std::lock_guard lock(mutex_);
    live_.erase(data);
    std::free(data);
  }
  bool owns(const at::Tensor& tensor) const { return ownsBlock(tensor.storage().data()); }
  size_t live() const {
    std::lock_guard lock(mutex_);
    return live_.size();
  }

  std::atomic<bool> exhausted{false};
  std::atomic<int> allocations{0};

 private:
  mutable std::mutex mutex_;
  std::set<void*> live_;
};

/// Installed once: an allocator is never removed, and neither is the owner of its blocks.
CountedBlocks& blocks() {
  static CountedBlocks& installed = [&]() -> CountedBlocks& {
    auto* made = new CountedBlocks;
    installRoutingAllocator(*made);
    return *made;
  }();
  return installed;
}

TEST(RoutingAllocator, RoutesOnlyWhileASourceIsInForce) {
  CountedBlocks& source = blocks();
  EXPECT_FALSE(source.owns(at::ones({100})));
  {
    const ScopedBlockSource scope(&source);
    EXPECT_TRUE(source.owns(at::ones({100})));
    EXPECT_TRUE(source.owns(at::ones({100}) + at::ones({100})));
  }
  EXPECT_FALSE(source.owns(at::ones({100})));
  EXPECT_EQ(source.live(), 0u);
}

TEST(RoutingAllocator, SourcesNestAndNoneMeansTheHeap) {
  CountedBlocks& source = blocks();
  const ScopedBlockSource outer(&source);
  {
    const ScopedBlockSource none(nullptr);
    EXPECT_FALSE(source.owns(at::ones({100})));
    {
      const ScopedBlockSource inner(&source);
      EXPECT_TRUE(source.owns(at::ones({100})));
    }
    EXPECT_FALSE(source.owns(at::ones({100})));
  }
  EXPECT_TRUE(source.owns(at::ones({100})));
}

TEST(RoutingAllocator, OtherThreadsAreNotRouted) {
  CountedBlocks& source = blocks();
  const ScopedBlockSource scope(&source);
  std::thread([&] { EXPECT_FALSE(source.owns(at::ones({100}))); }).join();
}

TEST(RoutingAllocator, TinyTensorsComeFromTheHeap) {
  CountedBlocks& source = blocks();
  const ScopedBlockSource scope(&source);
  EXPECT_FALSE(source.owns(at::ones({static_cast<int64_t>(kSmallestBlockBytes) - 1}, at::kByte)));
  EXPECT_TRUE(source.owns(at::ones({static_cast<int64_t>(kSmallestBlockBytes)}, at::kByte)));
  EXPECT_EQ(at::empty({0}).numel(), 0);
}

TEST(RoutingAllocator, TheHeapServesWhenTheSourceHasNothing) {
  CountedBlocks& source = blocks();
  source.exhausted = true;
  const ScopedBlockSource scope(&source);
  const at::Tensor tensor = at::full({1000}, 3);
  source.exhausted = false;
  EXPECT_FALSE(source.owns(tensor));
  EXPECT_EQ(tensor.sum().item<int64_t>(), 3000);
}

TEST(RoutingAllocator, ABlockMayBeFreedByAnyThreadAfterItsScope) {
  CountedBlocks& source = blocks();
  at::Tensor tensor;
  {
    const ScopedBlockSource scope(&source);
    tensor = at::ones({100});
  }
  ASSERT_TRUE(source.owns(tensor));
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(source.live(), 0u);
}

TEST(RoutingAllocator, ATensorMayGrowOnEitherSideOfAScope) {
  CountedBlocks& source = blocks();
  at::Tensor fromHeap = at::ones({100});
  at::Tensor fromSource;
  {
    const ScopedBlockSource scope(&source);
    fromSource = at::ones({100});
    fromHeap.resize_({10'000});
    EXPECT_TRUE(source.owns(fromHeap));
  }
  fromSource.resize_({10'000});
  EXPECT_FALSE(source.owns(fromSource));
  EXPECT_EQ(fromHeap.slice(0, 0, 100).sum().item<float>(), 100);
  EXPECT_EQ(fromSource.slice(0, 0, 100).sum().item<float>(), 100);
  fromHeap.reset();
  EXPECT_EQ(source.live(), 0u);
}

TEST(RoutingAllocator, StoragesFromBeforeItWasInstalledAreFreed) {
  // Allocated by c10's own allocator if this test runs first, else by ours; both must free it.
  at::Tensor early = at::ones({100});
  blocks();
  early.reset();
  EXPECT_EQ(blocks().live(), 0u);
}

TEST(RoutingAllocator, EachOwnerGetsItsOwnBlocksBack) {
  CountedBlocks& first = blocks();
  static auto* second = new CountedBlocks;
  installRoutingAllocator(*second);
  installRoutingAllocator(*second);  // repeating it changes nothing
  installRoutingAllocator(first);
  at::Tensor ofFirst;
  at::Tensor ofSecond;
  {
    const ScopedBlockSource scope(&first);
    ofFirst = at::ones({100});
  }
  {
    const ScopedBlockSource scope(second);
    ofSecond = at::ones({100});
  }
  EXPECT_TRUE(first.owns(ofFirst));
  EXPECT_TRUE(second->owns(ofSecond));
  ofFirst.reset();
  EXPECT_EQ(first.live(), 0u);
  EXPECT_EQ(second->live(), 1u);
  ofSecond.reset();
  EXPECT_EQ(second->live(), 0u);
}

// Each fork of a forked process adds an owner.
TEST(RoutingAllocator, GivesTheBlocksOfManyOwnersBackToEach) {
  blocks();
  static std::array<CountedBlocks, 8>& more = *new std::array<CountedBlocks, 8>;
  for (CountedBlocks& owner : more) installRoutingAllocator(owner);
  std::vector<at::Tensor> tensors;
  for (CountedBlocks& owner : more) {
    const ScopedBlockSource scope(&owner);
    tensors.push_back(at::ones({100}));
    EXPECT_TRUE(owner.owns(tensors.back()));
  }
  tensors.clear();
  for (const CountedBlocks& owner : more) EXPECT_EQ(owner.live(), 0u);
}

}  // namespace
}  // namespace isopool::ipc
