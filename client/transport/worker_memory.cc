// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/worker_memory.h"

#include <algorithm>
#include <chrono>

#include "client/program/process_fork.h"

namespace isopool::client {

namespace {

// The supervisor announces a segment to this process before it does so to the worker, so only this
// process's control thread can be late. Waits in turns: a time in which this process was stopped
// counts as one turn.
constexpr std::chrono::milliseconds kTurn(20);
constexpr int kTurns = 25;

void giveBack(void* context) {
  std::unique_ptr<LentBlock> block(static_cast<LentBlock*>(context));
  if (block->generation != forkGeneration()) {
    // It may be the last owner of the WorkerMemory, whose control segment is not mapped here.
    static_cast<void>(block.release());
    return;
  }
  if (block->memory->countGivenBack(*block)) {
    returnLentBlock(block.release());
  } else {
    returnAfterForks(block.release());
  }
}

}  // namespace

WorkerMemory::WorkerMemory(base::Epoch epoch, ipc::Mapping own, ipc::Mapping peer,
                           ipc::Mapping statusPage)
    : end_(epoch, ipc::excludedFromForks(std::move(own)), std::move(peer)),
      statusPage_(std::move(statusPage)) {}

void WorkerMemory::addSegment(base::SegmentId id, ipc::Mapping mapping) {
  {
    base::MutexLock lock(mutex_);
    auto copied = std::make_unique<CopiedInForks>(mapping.data(), mapping.bytes(), &lent_);
    segments_.push_back({id, std::move(mapping), std::move(copied)});
  }
  segmentAdded_.notify_all();
}

uint64_t WorkerMemory::capacityBytes() {
  base::MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.mapping.bytes();
  return bytes;
}

void WorkerMemory::expectNoMoreSegments() {
  {
    base::MutexLock lock(mutex_);
    complete_ = true;
  }
  segmentAdded_.notify_all();
}

std::optional<std::span<std::byte>> WorkerMemory::find(base::SegmentId id, uint64_t offset,
                                                       uint64_t bytes) {
  base::MutexLock lock(mutex_);
  const Segment* found = nullptr;
  const auto decided = [&]() ISOPOOL_REQUIRES(mutex_) {
    for (const Segment& segment : segments_) {
      if (segment.id == id) found = &segment;
    }
    return found != nullptr || complete_;
  };
  for (int turn = 0; !decided() && turn < kTurns; ++turn) segmentAdded_.wait_for(lock, kTurn);
  if (found == nullptr) return std::nullopt;
  const uint64_t size = found->mapping.bytes();
  if (offset > size || bytes > size - offset) return std::nullopt;
  return std::span(found->mapping.data() + offset, bytes);
}

bool WorkerMemory::neverCame(base::SegmentId id) {
  base::MutexLock lock(mutex_);
  return complete_ && std::none_of(segments_.begin(), segments_.end(),
                                   [&](const Segment& segment) { return segment.id == id; });
}

c10::Storage WorkerMemory::adopt(std::span<std::byte> block, base::SegmentId segment,
                                 uint64_t offset, ipc::Lease lease) {
  auto* context =
      new LentBlock{shared_from_this(), segment, offset, block.size(), lease, forkGeneration()};
  lentBytes_.fetch_add(block.size(), std::memory_order_relaxed);
  lent_.add(lease.index, block.data(), block.size());
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), block.size(),
      c10::DataPtr(block.data(), context, &giveBack, c10::Device(c10::DeviceType::CPU)),
      /*allocator=*/nullptr, /*resizable=*/false));
}

void returnLentBlock(LentBlock* block) noexcept {
  const std::unique_ptr<LentBlock> owned(block);
  ipc::returnLease(block->memory->end().returns(), block->lease);
}

const LentBlock* lentBlockOf(const c10::Storage& storage) noexcept {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &giveBack ? static_cast<const LentBlock*>(data.get_context())
                                         : nullptr;
}

}  // namespace isopool::client
