// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/output_blocks.h"

#include <algorithm>
#include <new>
#include <span>

#include "ipc/channel/futex.h"
#include "ipc/crash_point.h"
#include "ipc/memory/address_space.h"
#include "worker/memory/privatised_ranges.h"
#include "worker/process/user_forks.h"

namespace isopool::worker {

namespace {

// Address space only; memory comes with the segments. If the address space is limited, each
// client's arena reserves a share of what is left.
constexpr size_t kReservedBytes = size_t{64} << 30;

// After a refusal of the supervisor, a failed allocation requests a segment again only
// after this time.
constexpr int64_t kRefusalLasts = 100'000'000;  // ns

}  // namespace

OutputBlocks::OutputBlocks(uint64_t client, const ipc::LeaseReturns& peerReturns,
                           SegmentRequester& requester)
    : client_(client),
      requester_(requester),
      arena_(ipc::reservableBytes(kReservedBytes)),
      leases_(peerReturns) {}

OutputBlocks::~OutputBlocks() = default;

bool OutputBlocks::addSegment(base::SegmentId segment, base::Fd object, size_t bytes) {
  // The supervisor rounds up: a segment much larger than the block that wants it is for others,
  // too.
  const bool own =
      requestedBytes_ > ipc::PageArena::kLargestSmallBlock && requestedBytes_ * 2 >= bytes;
  const auto use = own ? ipc::SegmentUse::kLarge : ipc::SegmentUse::kMany;
  requestedBytes_ = 0;
  refusal_ = {};
  retired_.reserve(retired_.size() + objects_.size() + 1);  // trim() needs no memory
  base::Fd forWindows = object.duplicate();
  if (const size_t books = arena_.bookGrowth(bytes); books > 0) roomForBooks_.emplace_back(books);
  if (!arena_.addSegment(segment, std::move(object), bytes, ipc::Prefault::kYes, use)) {
    addressSpaceIsFull_ = true;
    return false;
  }
  objects_.emplace_back(segment, std::move(forWindows));
  ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentAdded);
  return true;
}

void OutputBlocks::segmentRefused(Refusal refusal) {
  requestedBytes_ = 0;
  refusal_ = std::move(refusal);
  const bool removed = !refusal_.ofSystem && removeFreeSegments();
  askAgainAt_ = removed ? 0 : ipc::monotonicNow() + kRefusalLasts;
}

bool OutputBlocks::removeFreeSegments() noexcept {
  size_t bytes = 0;
  for (uint32_t from = 0;;) {
    const ipc::PageArena::TrimStep step = arena_.trim(ipc::TrimRule::kSegments, from);
    bytes += step.bytes;
    from = step.next;
    retire(step);
    if (from == 0) break;
  }
  return bytes > 0;
}

bool OutputBlocks::trimStep(ipc::TrimRule rule) noexcept {
  const ipc::PageArena::TrimStep step = arena_.trim(rule, trimFrom_);
  trimFrom_ = step.next;
  retire(step);
  return trimFrom_ != 0;
}

void OutputBlocks::retire(const ipc::PageArena::TrimStep& step) noexcept {
  for (const base::SegmentId id : std::span(step.removed).first(step.removedCount)) {
    std::erase_if(objects_, [&](const auto& entry) { return entry.first == id; });
    retired_.push_back(id);
    addressSpaceIsFull_ = false;
  }
  while (!retired_.empty() && requester_.retireOutputSegment(client_, retired_.back())) {
    retired_.pop_back();
  }
}

// At the limit a block may lie anywhere, so that a larger free segment need not be replaced.
ipc::Fit OutputBlocks::fit() const noexcept {
  return refusal_.reason.empty() ? ipc::Fit::kBest : ipc::Fit::kAny;
}

void* OutputBlocks::allocateBlock(size_t bytes) noexcept {
  if (isForkedChild()) return nullptr;
  void* block = arena_.allocate(bytes, fit());
  if (block == nullptr) {
    wantRoom(bytes);
    return nullptr;
  }
  try {
    allocatedInCall_.push_back(block);
  } catch (const std::bad_alloc&) {
    arena_.dropReference(block);
    return nullptr;
  }
  return block;
}

void* OutputBlocks::allocateUnnoted(size_t bytes) noexcept { return arena_.allocate(bytes, fit()); }

void OutputBlocks::wantRoom(size_t bytes) noexcept {
  if (requestedBytes_ != 0) return;
  // Does not request a segment that could not be mapped: it would stay allocated until
  // the channel ends.
  lacksAddressSpace_ = addressSpaceIsFull_ || !arena_.hasRoomFor(ipc::roundUpToPages(bytes));
  if (lacksAddressSpace_) return;
  if (askAgainAt_ != 0 && ipc::monotonicNow() < askAgainAt_) return;
  requestedBytes_ = ipc::roundUpToPages(bytes);
  requester_.requestOutputSegment(client_, requestedBytes_);
}

std::optional<ipc::Lease> OutputBlocks::lend(void* block) {
  const auto lease = leases_.lend(block);
  if (!lease) return std::nullopt;
  arena_.addReference(block);
  lentInCall_.push_back({block, *lease, /*hadStorage=*/true});
  ipc::reachCrashPoint(ipc::CrashPoint::kResultLent);
  return lease;
}

std::optional<ipc::Lease> OutputBlocks::lendOwned(void* block) {
  const auto lease = leases_.lend(block);
  if (lease) lentInCall_.push_back({block, *lease, /*hadStorage=*/false});
  ipc::reachCrashPoint(ipc::CrashPoint::kResultLent);
  return lease;
}

void OutputBlocks::cancelLeases() {
  for (const Lent& lent : lentInCall_) {
    if (leases_.cancel(lent.lease)) arena_.dropReference(lent.block);
  }
  lentInCall_.clear();
}

void OutputBlocks::collectReturned() noexcept {
  leases_.collect([this](const void* block) { arena_.dropReference(block); });
}

uint32_t OutputBlocks::leasesOf(const void* block) const noexcept {
  // A block of this call can only have leases of this call; one of an earlier call may have more.
  const bool allocatedNow = std::find(allocatedInCall_.rbegin(), allocatedInCall_.rend(), block) !=
                            allocatedInCall_.rend();
  return allocatedNow ? leasesOfThisCall(block) : leases_.leasesOf(block);
}

uint32_t OutputBlocks::leasesOfThisCall(const void* block) const noexcept {
  return static_cast<uint32_t>(
      std::count_if(lentInCall_.begin(), lentInCall_.end(),
                    [block](const Lent& lent) { return lent.block == block; }));
}

bool OutputBlocks::privatiseLocked(void* block, size_t bytes) noexcept {
  try {
    if (!privatised_.insert(block).second) return false;
  } catch (const std::bad_alloc&) {
    return false;  // treated as a failure to privatise
  }
  if (!privatiseRange(block, bytes)) {
    privatised_.erase(block);
    return false;
  }
  privatisedCount_.store(privatised_.size(), std::memory_order_relaxed);
  return true;
}

void OutputBlocks::privatiseLent(CopyCounts& copies) {
  for (const Lent& lent : lentInCall_) {
    if (!lent.hadStorage) continue;
    // Most storages are gone by now: this check finds them without taking the mutex.
    const uint32_t leases = leasesOf(lent.block);
    if (arena_.references(lent.block) <= leases) continue;
    base::MutexLock lock(mutex_);
    if (arena_.references(lent.block) <= leases) continue;
    const size_t bytes = arena_.locate(lent.block)->bytes;
    if (privatiseLocked(lent.block, bytes)) copies.count(ipc::CopyReason::kKeptByModel, bytes);
  }
}

void OutputBlocks::noteKept() {
  for (void* block : allocatedInCall_) {
    if (arena_.references(block) == 0) continue;
    base::MutexLock lock(mutex_);
    if (arena_.references(block) > leasesOfThisCall(block) && privatised_.count(block) == 0) {
      if (kept_.insert(block).second) keptBytes_ += arena_.locate(block)->bytes;
    }
  }
}

void OutputBlocks::privatiseKept(CopyCounts& copies) {
  base::MutexLock lock(mutex_);
  for (void* block : kept_) {
    const size_t bytes = arena_.locate(block)->bytes;
    if (privatiseLocked(block, bytes)) copies.count(ipc::CopyReason::kKeptByModel, bytes);
  }
  kept_.clear();
  keptBytes_ = 0;
}

size_t OutputBlocks::keptBytes() const noexcept {
  base::MutexLock lock(mutex_);
  return keptBytes_;
}

void OutputBlocks::endCall() {
  allocatedInCall_.clear();
  lentInCall_.clear();
}

bool OutputBlocks::isPrivatised(const void* block) const noexcept {
  if (privatisedCount_.load(std::memory_order_relaxed) == 0) return false;
  base::MutexLock lock(mutex_);
  return privatised_.count(block) != 0;
}

ipc::Mapping OutputBlocks::mapWindow(const ipc::BlockLocation& block) const {
  for (const auto& [segment, object] : objects_) {
    if (segment == block.segment) {
      return ipc::mapShared(object, block.offset, block.bytes, ipc::Access::kReadWrite,
                            ipc::Prefault::kNo);
    }
  }
  return {};
}

bool OutputBlocks::privatise(void* block, size_t bytes) noexcept {
  base::MutexLock lock(mutex_);
  return privatiseLocked(block, bytes);
}

void OutputBlocks::free(void* block) noexcept {
  if (isForkedChild()) return;
  base::MutexLock lock(mutex_);
  if (kept_.erase(block) != 0) keptBytes_ -= arena_.locate(block)->bytes;
  if (!privatised_.empty() && privatised_.erase(block) != 0) {
    privatisedCount_.store(privatised_.size(), std::memory_order_relaxed);
    if (detached_) {
      forgetPrivatisedRange();
    } else {
      endPrivatisedRange(block, arena_.locate(block)->bytes);
      // Without its shared pages the block could not be used again. This does not fail: a mapping
      // that replaces an existing one needs no further entry in the kernel's table.
      arena_.restoreSharedPages(block);
    }
    ipc::reachCrashPoint(ipc::CrashPoint::kKeptBlockRestored);
  }
  arena_.dropReference(block);
}

void OutputBlocks::detach() noexcept {
  leases_.collectAll([this](const void* block) { arena_.dropReference(block); });
  base::MutexLock lock(mutex_);
  detached_ = true;
  kept_.clear();
  keptBytes_ = 0;
  arena_.leaveSegments();
  objects_.clear();
  retired_.clear();
}

void OutputBlocks::addLive(std::vector<ipc::LiveBlocks>& all) const {
  base::MutexLock lock(mutex_);
  if (!detached_) arena_.addLive(all);
}

}  // namespace isopool::worker
