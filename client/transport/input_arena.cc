// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/input_arena.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <memory>
#include <utility>

#include "client/program/environment_setting.h"
#include "client/program/event_log.h"
#include "client/program/process_fork.h"
#include "client/transport/fork_copies.h"
#include "ipc/memory/address_space.h"

namespace isopool::client {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallestSegment = 8 * kMiB;
constexpr size_t kLargestAutomaticSegment = 256 * kMiB;
// PageArena counts pages with 32 bits.
constexpr size_t kMostReserved = (size_t{1} << 44) - (size_t{1} << 30);
// A process with a lower limit on its address space could not work anyway.
constexpr size_t kLeastReserved = 64 * kMiB;

// Rounds a large request up by at most an eighth, so that a similar one fits into the same segment.
size_t segmentBytesFor(size_t request, size_t capacity) {
  if (request * 4 <= kSmallestSegment) {
    // Many small blocks: a new segment has half the present capacity, so that segments stay few.
    return std::clamp(capacity / 2 / kMiB * kMiB, kSmallestSegment, kLargestAutomaticSegment);
  }
  const size_t step = std::max(2 * kMiB, std::bit_floor(request) / 8);
  return (request + step - 1) / step * step;
}

size_t reservedBytes(uint64_t setting) {
  const size_t wanted = std::clamp(setting, uint64_t{kLeastReserved}, kMostReserved);
  return std::max(ipc::reservableBytes(wanted), kLeastReserved);
}

void freeArenaBlock(void* data) { InputArena::instance().freeBlock(data); }

}  // namespace

InputArena& InputArena::instance() {
  static std::atomic<InputArena*> current{nullptr};
  InputArena* known = current.load(std::memory_order_acquire);
  if (known != nullptr && known->generation_ == forkGeneration()) return *known;
  std::unique_ptr<InputArena> made(new InputArena);
  if (current.compare_exchange_strong(known, made.get())) {
    copyArenaInForks(made->arena_, made->forkCopyLimit_);
    return *made.release();
  }
  return *known;  // another thread was first
}

InputArena::InputArena()
    : settingBytes_(sizeSetting("ISOPOOL_INPUT_ARENA_LIMIT")),
      forkCopyLimit_(sizeSetting("ISOPOOL_FORK_COPY_LIMIT")),
      generation_(forkGeneration()),
      arena_(reservedBytes(settingBytes_)),
      limitBytes_(
          std::min<uint64_t>(settingBytes_, arena_.addressSpace().size() - ipc::kPageBytes)) {
  if (limitBytes_ == settingBytes_) return;
  logEvent(LogLevel::kWarning, [&] {
    return "the memory shared with workers is limited to " + std::to_string(limitBytes_) +
           " bytes instead of " + std::to_string(settingBytes_) + ": " + limitInWords();
  });
}

std::string InputArena::limitInWords() const {
  return limitBytes_ == settingBytes_
             ? "ISOPOOL_INPUT_ARENA_LIMIT"
             : "the limit of the process's address space (RLIMIT_AS, ulimit -v), of which this "
               "memory takes a quarter at most";
}

void* InputArena::allocateBlock(size_t bytes) noexcept {
  if (generation_ != forkGeneration()) return nullptr;
  void* block = arena_.allocate(bytes);
  if (block == nullptr) {
    reclaim();
    block = arena_.allocate(bytes);
  }
  try {
    if (block == nullptr && grow(bytes)) block = arena_.allocate(bytes);
    if (block != nullptr) announceSegmentOf(block);
    return block;
  } catch (const std::exception&) {
    // No memory or no free descriptor: the routing allocator then uses the heap.
    if (block != nullptr) arena_.dropReference(block);
    return nullptr;
  }
}

void InputArena::freeBlock(void* data) noexcept { dropReference(data); }

void InputArena::dropReference(const void* block) noexcept {
  // A forked child has a copy of the parent's bookkeeping, whose lock may be held by a thread that
  // does not exist in the child.
  if (generation_ == forkGeneration() && arena_.contains(block)) arena_.dropReference(block);
}

std::optional<c10::Storage> InputArena::makeStorage(size_t bytes) {
  void* block = allocateBlock(std::max<size_t>(bytes, 1));
  if (block == nullptr) return std::nullopt;
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(block, block, &freeArenaBlock, c10::Device(c10::DeviceType::CPU)),
      /*allocator=*/nullptr, /*resizable=*/false));
}

bool InputArena::grow(size_t request) {
  base::MutexLock lock(growMutex_);
  const size_t capacity = arena_.capacityBytes();
  const size_t bytes = segmentBytesFor(ipc::roundUpToPages(request), capacity);
  // The reserved address space covers the limit, so that every segment within it can be mapped.
  if (bytes > limitBytes_ || capacity > limitBytes_ - bytes) return false;
  const base::SegmentId id(static_cast<uint32_t>(segments_.size() + 1));
  base::Fd object = ipc::createMemoryObject("isopool:input", bytes);
  segments_.push_back({id, object.duplicate(), bytes});
  const uint32_t unannounced = unannounced_.load(std::memory_order_relaxed);
  // Set before another thread can get a block of the segment.
  if (unannounced == 0) unannounced_.store(id.value, std::memory_order_relaxed);
  bool added = false;
  try {
    added = arena_.addSegment(id, std::move(object), bytes, ipc::Prefault::kYes);
  } catch (const std::exception&) {
    // No memory. The segment is not announced yet, because an announcement can't be taken back.
  }
  if (!added) {
    unannounced_.store(unannounced, std::memory_order_relaxed);
    segments_.pop_back();
  }
  return added;
}

// Notifies the audiences of the block's segment: a worker can't use a block of a segment that its
// supervisor does not have. If a notification throws, the next block of the segment tries again.
void InputArena::announceSegmentOf(const void* block) {
  const uint32_t first = unannounced_.load(std::memory_order_relaxed);
  if (first == 0 || arena_.locate(block)->segment.value < first) return;
  base::MutexLock lock(growMutex_);
  for (Audience& audience : audiences_) tell(audience);
  unannounced_.store(0, std::memory_order_relaxed);
}

void InputArena::tell(Audience& audience) const {
  for (; audience.told < segments_.size(); ++audience.told) {
    const KnownSegment& segment = segments_[audience.told];
    audience.audience->segmentAdded(segment.id, segment.object, segment.bytes);
  }
}

void InputArena::reclaim() noexcept {
  base::MutexLock lock(loansMutex_);
  for (ipc::LeaseTable* loans : loans_) {
    loans->collect([this](const void* block) { dropReference(block); });
  }
}

void InputArena::addAudience(SegmentAudience& audience) {
  base::MutexLock lock(growMutex_);
  Audience added{&audience, 0};
  tell(added);
  audiences_.push_back(added);
}

void InputArena::removeAudience(SegmentAudience& audience) {
  base::MutexLock lock(growMutex_);
  std::erase_if(audiences_, [&](const Audience& each) { return each.audience == &audience; });
}

void InputArena::addLoans(ipc::LeaseTable& loans) {
  base::MutexLock lock(loansMutex_);
  loans_.push_back(&loans);
}

void InputArena::removeLoans(ipc::LeaseTable& loans) {
  base::MutexLock lock(loansMutex_);
  std::erase(loans_, &loans);
}

}  // namespace isopool::client
