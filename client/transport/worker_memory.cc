// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/worker_memory.h"

#include <c10/core/CPUAllocator.h>

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

void dropReference(LentBlock* block) noexcept {
  // Almost always the only one: then no atomic write is needed.
  if (block->references.load(std::memory_order_acquire) != 1 &&
      block->references.fetch_sub(1, std::memory_order_acq_rel) != 1) {
    return;
  }
  // In a forked child it may be the last owner of the WorkerMemory, whose control segment is not
  // mapped there.
  if (block->generation != forkGeneration()) return;
  if (block->memory->countGivenBack(*block)) {
    returnLentBlock(block);
  } else {
    returnAfterForks(block);
  }
}

void giveBack(void* context) { dropReference(static_cast<LentBlock*>(context)); }

}  // namespace

WorkerMemory::WorkerMemory(base::Epoch epoch, ipc::Mapping own, ipc::Mapping peer,
                           ipc::Mapping statusPage)
    : end_(epoch, ipc::excludedFromForks(std::move(own)), std::move(peer)),
      statusPage_(std::move(statusPage)) {}

void WorkerMemory::addSegment(base::SegmentId id, ipc::Mapping mapping) {
  auto segment = std::make_shared<OutputSegment>(OutputSegment{id, std::move(mapping), nullptr});
  {
    base::MutexLock lock(mutex_);
    segment->copied =
        std::make_unique<CopiedInForks>(segment->mapping.data(), segment->mapping.bytes(), &lent_);
    segments_.push_back(std::move(segment));
  }
  segmentAdded_.notify_all();
}

void WorkerMemory::removeSegment(base::SegmentId id) {
  std::shared_ptr<OutputSegment> removed;  // unmapped without the lock
  base::MutexLock lock(mutex_);
  const auto found = std::find_if(segments_.begin(), segments_.end(),
                                  [&](const auto& segment) { return segment->id == id; });
  if (found == segments_.end()) return;
  removed = std::move(*found);
  segments_.erase(found);
}

uint64_t WorkerMemory::capacityBytes() {
  base::MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& segment : segments_) bytes += segment->mapping.bytes();
  return bytes;
}

void WorkerMemory::expectNoMoreSegments() {
  {
    base::MutexLock lock(mutex_);
    complete_ = true;
  }
  segmentAdded_.notify_all();
}

std::optional<OutputPlace> WorkerMemory::find(base::SegmentId id, uint64_t offset, uint64_t bytes) {
  base::MutexLock lock(mutex_);
  std::shared_ptr<OutputSegment> found;
  const auto decided = [&]() ISOPOOL_REQUIRES(mutex_) {
    for (const auto& segment : segments_) {
      if (segment->id == id) found = segment;
    }
    return found != nullptr || complete_;
  };
  for (int turn = 0; !decided() && turn < kTurns; ++turn) segmentAdded_.wait_for(lock, kTurn);
  if (found == nullptr) return std::nullopt;
  const uint64_t size = found->mapping.bytes();
  if (offset > size || bytes > size - offset) return std::nullopt;
  std::byte* const begin = found->mapping.data() + offset;
  return OutputPlace{std::move(found), std::span(begin, bytes)};
}

bool WorkerMemory::neverCame(base::SegmentId id) {
  base::MutexLock lock(mutex_);
  return complete_ && std::none_of(segments_.begin(), segments_.end(),
                                   [&](const auto& segment) { return segment->id == id; });
}

c10::Storage WorkerMemory::adopt(OutputPlace place, ipc::Lease lease) {
  const std::span<std::byte> block = place.bytes;
  const auto offset = static_cast<uint64_t>(block.data() - place.segment->mapping.data());
  auto* context = new LentBlock{.memory = shared_from_this(),
                                .segment = std::move(place.segment),
                                .offset = offset,
                                .bytes = block.size(),
                                .lease = lease,
                                .generation = forkGeneration()};
  lentBytes_.fetch_add(block.size(), std::memory_order_relaxed);
  lent_.add(lease.index, block.data(), block.size());
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), block.size(),
      c10::DataPtr(block.data(), context, &giveBack, c10::Device(c10::DeviceType::CPU)),
      c10::GetCPUAllocator(), /*resizable=*/true));
}

void returnLentBlock(LentBlock* block) noexcept {
  const std::unique_ptr<LentBlock> owned(block);
  ipc::returnLease(block->memory->end().returns(), block->lease);
}

void HeldBlock::release() noexcept {
  if (block_ != nullptr) dropReference(std::exchange(block_, nullptr));
}

LentBlock* lentBlockOf(const c10::Storage& storage) noexcept {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &giveBack ? static_cast<LentBlock*>(data.get_context()) : nullptr;
}

}  // namespace isopool::client
