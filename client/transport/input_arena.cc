// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/input_arena.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "client/program/environment_setting.h"
#include "client/program/event_log.h"
#include "client/program/process_fork.h"
#include "client/transport/fork_copies.h"
#include "ipc/channel/futex.h"
#include "ipc/memory/address_space.h"
#include "ipc/memory/creation_failure.h"

namespace isopool::client {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallestSegment = 8 * kMiB;
constexpr size_t kLargestAutomaticSegment = 256 * kMiB;
// From so many segments on, large blocks share segments: each one takes descriptors here, in the
// supervisor and in the workers.
constexpr size_t kManySegments = 128;
// So many retired segments may wait for the answers of supervisors; further ones stay, except at
// the limit.
constexpr ptrdiff_t kMostRetired = 64;
// In ns, between two requests to the workers to trim their memory.
constexpr int64_t kBetweenRequests = 200'000'000;
// PageArena counts pages with 32 bits.
constexpr size_t kMostReserved = (size_t{1} << 44) - (size_t{1} << 30);
// The address space, compared with the limit: a segment of which a small part is in use takes all
// of its addresses, but only the memory of this part.
constexpr uint64_t kReservedPerByte = 16;
// A process with a lower limit on its address space could not work anyway.
constexpr size_t kLeastReserved = 64 * kMiB;

bool isLarge(size_t request) { return request > ipc::PageArena::kLargestSmallBlock; }

// Rounds a large request up by at most an eighth, so that a similar one fits into the same segment.
size_t segmentBytesFor(size_t request, size_t capacity, bool own) {
  if (!isLarge(request)) {
    // Many small blocks: a new segment has half the present capacity, so that segments stay few.
    return std::clamp(capacity / 2 / kMiB * kMiB, kSmallestSegment, kLargestAutomaticSegment);
  }
  const size_t step = std::max(2 * kMiB, std::bit_floor(request) / 8);
  const size_t rounded = (request + step - 1) / step * step;
  if (own) return rounded;
  return std::max(rounded, std::min(capacity / 32 / kMiB * kMiB, kLargestAutomaticSegment));
}

size_t reservedBytes(uint64_t limit) {
  const size_t wanted = limit > kMostReserved / kReservedPerByte
                            ? kMostReserved
                            : std::max<size_t>(limit * kReservedPerByte, kLeastReserved);
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
    : settingBytes_(numberSetting("ISOPOOL_INPUT_ARENA_LIMIT")),
      forkCopyLimit_(numberSetting("ISOPOOL_FORK_COPY_LIMIT")),
      generation_(forkGeneration()),
      arena_(reservedBytes(settingBytes_)),
      limitBytes_(
          std::min<uint64_t>(settingBytes_, arena_.addressSpace().size() - ipc::kPageBytes)) {
  arena_.limitHeld(limitBytes_);
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

std::string InputArena::fullText() const {
  return "the memory shared with workers is limited to " + std::to_string(limitBytes_) +
         " bytes, of which " + std::to_string(arena_.bytesInUse()) +
         " are in use by tensors and calls, " + std::to_string(arena_.heldBytes()) +
         " are held, and the largest free block has " + std::to_string(arena_.largestFreeBlock()) +
         ": release tensors of isopool::empty, or raise " + limitInWords();
}

void* InputArena::allocateBlock(size_t bytes) noexcept {
  try {
    NoBlock why;
    void* block = allocateBlock(bytes, why);
    if (block == nullptr) logOrdinaryMemory(bytes, why);
    return block;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* InputArena::allocateBlock(size_t bytes, NoBlock& why) {
  if (generation_ != forkGeneration()) {
    why = {false, "this process has forked"};
    return nullptr;
  }
  void* block = arena_.allocate(bytes);
  if (block == nullptr) {
    reclaim();
    block = arena_.allocate(bytes);
  }
  if (block == nullptr) block = grow(bytes, why);
  if (block == nullptr) return nullptr;
  try {
    announceSegmentOf(block);
  } catch (const std::exception&) {
    // No memory: the next block of the segment tries again.
    arena_.dropReference(block);
    throw std::bad_alloc();
  }
  return block;
}

void InputArena::logOrdinaryMemory(size_t bytes, const NoBlock& why) noexcept {
  if (failureLogged_.load(std::memory_order_relaxed) || failureLogged_.exchange(true)) return;
  try {
    logEvent(LogLevel::kWarning, [&] {
      return "a tensor of " + std::to_string(bytes) +
             " bytes is in ordinary memory, as further ones may be, and will be copied when it is "
             "passed to a worker: " +
             why.text;
    });
  } catch (const std::bad_alloc&) {
    // There is no memory to report it either.
  }
}

void InputArena::freeBlock(void* data) noexcept {
  if (generation_ != forkGeneration() || !arena_.contains(data)) return;
  const ipc::PageArena::Freed what = arena_.dropReference(data);
  // A block that is still lent is returned without a notification: trimIdle() looks for that.
  if (what != ipc::PageArena::Freed::kNothing || arena_.holdsMoreThanReserve()) freed(what);
}

void InputArena::dropReference(const void* block) noexcept {
  // A forked child has a copy of the parent's bookkeeping, whose lock may be held by a thread that
  // does not exist in the child.
  if (generation_ != forkGeneration() || !arena_.contains(block)) return;
  const ipc::PageArena::Freed what = arena_.dropReference(block);
  if (what != ipc::PageArena::Freed::kNothing) freed(what);
}

std::optional<c10::Storage> InputArena::makeStorage(size_t bytes, NoBlock& why) {
  void* block = allocateBlock(std::max<size_t>(bytes, 1), why);
  if (block == nullptr) return std::nullopt;
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(block, block, &freeArenaBlock, c10::Device(c10::DeviceType::CPU)),
      c10::GetCPUAllocator(), /*resizable=*/true));
}

// A block that and what is in use are together within the limit: then there is always room.
void* InputArena::grow(size_t request, NoBlock& why) {
  const size_t bytes = ipc::roundUpToPages(request);
  base::MutexLock lock(growMutex_);
  for (;;) {
    // Another thread may have grown the arena, or has taken what this one has added.
    if (void* block = arena_.allocate(bytes)) return block;
    if (bytes > limitBytes_ || arena_.bytesInUse() > limitBytes_ - bytes) {
      why = {bytes <= limitBytes_, fullText()};
      return nullptr;
    }
    const bool own = isLarge(bytes) && arena_.segmentCount() < kManySegments;
    // The first one for small blocks becomes the reserve.
    const size_t present = arena_.reserveBytes() != 0 ? arena_.capacityBytes() : 0;
    size_t size = segmentBytesFor(bytes, present, own);
    if (size > roomForMemory()) {
      if (void* block = arena_.allocate(bytes, ipc::Fit::kAny)) return block;
      for (uint32_t from = 0; bytes > roomForMemory();) {
        const ipc::PageArena::TrimStep step = arena_.trim(ipc::TrimRule::kAll, from);
        retire(step);
        from = step.next;
        if (from == 0) break;
      }
      if (void* block = arena_.allocate(bytes, ipc::Fit::kAny)) return block;
      if (bytes > limitBytes_ - std::min<uint64_t>(arena_.heldBytes(), limitBytes_)) {
        why = {true, fullText()};
        return nullptr;
      }
      // Small blocks share what is left, so that segments stay few.
      size = isLarge(bytes) ? bytes : std::max(bytes, std::min<size_t>(size, roomForMemory()));
    }
    try {
      addSegment(size, own ? ipc::SegmentUse::kLarge : ipc::SegmentUse::kMany);
      failureLogged_.store(false, std::memory_order_relaxed);
    } catch (const base::SystemCallError& error) {
      why = {false, "no shared memory of " + std::to_string(size) + " bytes could be made: " +
                        ipc::creationFailureInWords(error, "this process")};
      return nullptr;
    }
  }
}

// How much more the arena may hold, in whole pages. A supervisor refuses a segment beyond its own
// limit, and then the calls with blocks in it. That limit counts packages and results, too, which
// are not known here.
size_t InputArena::roomForMemory() const {
  uint64_t limit = limitBytes_;
  for (const SegmentAudience* audience : audiences_) {
    if (audience->memoryLimit() != 0) limit = std::min(limit, audience->memoryLimit());
  }
  const uint64_t held = arena_.heldBytes();
  return limit > held ? (limit - held) / ipc::kPageBytes * ipc::kPageBytes : 0;
}

void InputArena::addSegment(size_t bytes, ipc::SegmentUse use) {
  // If it throws, no memory was made: at most one segment is unannounced.
  if (unannounced_.load(std::memory_order_relaxed) != 0) announce();
  const auto isTaken = [&](uint32_t number) ISOPOOL_REQUIRES(growMutex_) {
    return std::any_of(segments_.begin(), segments_.end(),
                       [number](const KnownSegment& each) { return each.id.value == number; });
  };
  uint32_t number = 1;
  while (isTaken(number)) ++number;
  const base::SegmentId id(number);
  base::Fd object = ipc::createMemoryObject("isopool:input", bytes);
  segments_.push_back({id, object.duplicate(), bytes, /*retired=*/false, {}});
  // Set before another thread can get a block of the segment. The segment is not announced yet,
  // because it may not come into being.
  unannounced_.store(number, std::memory_order_relaxed);
  try {
    if (arena_.addSegment(id, std::move(object), bytes, ipc::Prefault::kYes, use)) return;
    throw base::SystemCallError("mmap", "the address space reserved for shared memory", ENOMEM);
  } catch (...) {
    unannounced_.store(0, std::memory_order_relaxed);
    segments_.pop_back();
    throw;
  }
}

// Notifies the audiences of the block's segment: a worker can't use a block of a segment that its
// supervisor does not have. If a notification throws, the next block of the segment tries again.
void InputArena::announceSegmentOf(const void* block) {
  const uint32_t unannounced = unannounced_.load(std::memory_order_relaxed);
  if (unannounced == 0 || arena_.locate(block)->segment.value != unannounced) return;
  base::MutexLock lock(growMutex_);
  announce();
}

void InputArena::announce() {
  for (SegmentAudience* audience : audiences_) tell(*audience);
  unannounced_.store(0, std::memory_order_relaxed);
}

void InputArena::tell(SegmentAudience& audience) {
  for (KnownSegment& segment : segments_) {
    const bool knows =
        std::any_of(segment.listeners.begin(), segment.listeners.end(),
                    [&](const Listener& listener) { return listener.audience == &audience; });
    if (segment.retired || knows) continue;
    segment.listeners.push_back({&audience, /*toldOfEnd=*/false});
    try {
      audience.segmentAdded(segment.id, segment.object, segment.bytes);
    } catch (...) {
      segment.listeners.pop_back();
      throw;
    }
  }
}

// ---- memory that goes back to the system --------------------------------------------------------

size_t InputArena::trim() {
  reclaim();
  const size_t bytes = trimAll(ipc::TrimRule::kAll);
  // A program may call this all the time, and the supervisor reads a message for each of these.
  static std::atomic<int64_t> nextRequest{0};
  const int64_t now = ipc::monotonicNow();
  if (now < nextRequest.load()) return bytes;
  nextRequest.store(now + kBetweenRequests);
  base::MutexLock lock(growMutex_);
  for (SegmentAudience* audience : audiences_) audience->trimIsWanted();
  return bytes;
}

std::optional<std::chrono::milliseconds> InputArena::trimIdle() noexcept {
  if (!idleMutex_.try_lock()) return kIdleTime;
  base::MutexLock idle(idleMutex_, std::adopt_lock);
  const bool lent = reclaim();
  if (tooManyRetired()) return kIdleTime;
  {
    const ipc::PageArena::TrimStep step = arena_.trim(ipc::TrimRule::kIdle, idleFrom_);
    idleFrom_ = step.next;
    base::MutexLock lock(growMutex_);
    retire(step);
  }
  if (idleFrom_ != 0) return std::chrono::milliseconds(0);
  if (arena_.hasIdleMemory() || (lent && arena_.holdsMoreThanReserve())) return kIdleTime;
  trimIsDue_.store(false);
  // What became free before the line above has notified no audience.
  if (arena_.hasIdleMemory() && !trimIsDue_.exchange(true)) return kIdleTime;
  return std::nullopt;
}

size_t InputArena::trimAll(ipc::TrimRule rule) noexcept {
  size_t bytes = 0;
  uint32_t from = 0;
  do {
    if (tooManyRetired()) break;
    const ipc::PageArena::TrimStep step = arena_.trim(rule, from);
    bytes += step.bytes;
    from = step.next;
    base::MutexLock lock(growMutex_);
    retire(step);
  } while (from != 0);
  return bytes;
}

// If a supervisor or worker does not answer for long, memory stays instead of messages that pile
// up.
bool InputArena::tooManyRetired() noexcept {
  base::MutexLock lock(growMutex_);
  return std::count_if(segments_.begin(), segments_.end(),
                       [](const KnownSegment& segment) { return segment.retired; }) >= kMostRetired;
}

void InputArena::retire(const ipc::PageArena::TrimStep& step) noexcept {
  for (const base::SegmentId id : std::span(step.removed).first(step.removedCount)) {
    for (KnownSegment& segment : segments_) {
      if (segment.id != id) continue;
      segment.retired = true;
      segment.object.close();
    }
    if (unannounced_.load(std::memory_order_relaxed) == id.value) unannounced_.store(0);
  }
  tellOfEnds();
}

void InputArena::tellOfEnds() noexcept {
  for (KnownSegment& segment : segments_) {
    if (!segment.retired) continue;
    for (Listener& listener : segment.listeners) {
      if (listener.toldOfEnd) continue;
      try {
        listener.audience->segmentRetired(segment.id);
        listener.toldOfEnd = true;
      } catch (const std::exception&) {
        // No memory: the next trim tries again.
      }
    }
  }
  std::erase_if(segments_, [](const KnownSegment& segment) {
    return segment.retired && segment.listeners.empty();
  });
}

void InputArena::segmentReleased(SegmentAudience& audience, base::SegmentId id) noexcept {
  base::MutexLock lock(growMutex_);
  for (KnownSegment& segment : segments_) {
    if (segment.id != id || !segment.retired) continue;
    std::erase_if(segment.listeners, [&](const Listener& listener) {
      return listener.audience == &audience && listener.toldOfEnd;
    });
  }
  tellOfEnds();
}

void InputArena::freed(ipc::PageArena::Freed what) noexcept {
  if (trimIsDue_.load(std::memory_order_relaxed) || trimIsDue_.exchange(true)) return;
  {
    base::MutexLock lock(trimmerMutex_);
    if (!trimmers_.empty()) return trimmers_.front()->trimIsDue();
  }
  trimIsDue_.store(false);
  if (what == ipc::PageArena::Freed::kSegment) trimAll(ipc::TrimRule::kSegments);
}

bool InputArena::reclaim() noexcept {
  bool lent = false;
  base::MutexLock lock(lendersMutex_);
  for (BlockLender* lender : lenders_) lent = lender->reclaim() || lent;
  return lent;
}

void InputArena::addAudience(SegmentAudience& audience) {
  base::MutexLock lock(growMutex_);
  audiences_.push_back(&audience);
  try {
    tell(audience);
    base::MutexLock trimmers(trimmerMutex_);
    trimmers_.push_back(&audience);
  } catch (...) {
    audiences_.pop_back();
    forget(audience);
    throw;
  }
  // What was freed while there was no audience.
  if (arena_.hasIdleMemory() && !trimIsDue_.exchange(true)) audience.trimIsDue();
}

void InputArena::forget(SegmentAudience& audience) noexcept {
  const auto isIts = [&](const Listener& listener) { return listener.audience == &audience; };
  for (KnownSegment& segment : segments_) std::erase_if(segment.listeners, isIts);
}

void InputArena::removeAudience(SegmentAudience& audience) {
  bool isLast = false;
  {
    base::MutexLock lock(growMutex_);
    std::erase(audiences_, &audience);
    forget(audience);
    tellOfEnds();
    base::MutexLock trimmers(trimmerMutex_);
    std::erase(trimmers_, &audience);
    isLast = trimmers_.empty();
    // It may have been the one that was notified.
    if (!isLast && trimIsDue_.load()) trimmers_.front()->trimIsDue();
    if (isLast) trimIsDue_.store(false);
  }
  if (isLast) trimAll(ipc::TrimRule::kAll);
}

void InputArena::addLender(BlockLender& lender) {
  base::MutexLock lock(lendersMutex_);
  lenders_.push_back(&lender);
}

void InputArena::removeLender(BlockLender& lender) {
  base::MutexLock lock(lendersMutex_);
  std::erase(lenders_, &lender);
}

}  // namespace isopool::client
