// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "ipc/channel/lease_table.h"
#include "ipc/memory/page_arena.h"
#include "ipc/tensor/routing_allocator.h"

namespace isopool::client {

/// Observer that is notified of each new segment: a connection to a supervisor.
class SegmentAudience {
 public:
  virtual ~SegmentAudience() = default;
  /// If it throws, it has done nothing, and is called again before a block of the segment is used.
  virtual void segmentAdded(base::SegmentId id, const base::Fd& object, size_t bytes) = 0;
};

/// This process's memory for tensors that go to workers: one arena for all managers, mapped by
/// every worker that the process may call, so that a tensor made before a worker was chosen crosses
/// without a copy. Grows by segments of its own making, up to ISOPOOL_INPUT_ARENA_LIMIT; never
/// shrinks.
///
/// Lives for ever, because storages do. Any thread. A forked child has one of its own; its parent's
/// neither allocates nor frees there.
class InputArena final : public ipc::BlockSource, public ipc::BlockOwner {
 public:
  static InputArena& instance();

  /// A block with one reference, or nullptr if the arena is at its limit. Never waits for another
  /// process, but makes and pre-faults memory when it grows.
  void* allocateBlock(size_t bytes) noexcept override;
  bool ownsBlock(const void* data) const noexcept override { return arena_.contains(data); }
  void freeBlock(void* data) noexcept override;

  /// A storage over a new block; nullopt as allocateBlock.
  std::optional<c10::Storage> makeStorage(size_t bytes);

  std::optional<ipc::BlockLocation> locate(const void* data) const noexcept {
    return arena_.locate(data);
  }
  /// As PageArena's; dropReference() takes it back.
  std::optional<ipc::PageArena::BlockReference> referTo(const void* data) noexcept {
    return arena_.referTo(data);
  }
  void dropReference(const void* block) noexcept;

  /// Tells `audience` of all segments, those that exist now first. Until remove. If it throws, the
  /// audience is none.
  void addAudience(SegmentAudience& audience);
  void removeAudience(SegmentAudience& audience);

  /// Loans of this arena's blocks: asked for what came back when the arena is full.
  void addLoans(ipc::LeaseTable& loans);
  void removeLoans(ipc::LeaseTable& loans);

  uint64_t capacityBytes() const { return arena_.capacityBytes(); }
  uint64_t bytesInUse() const { return arena_.bytesInUse(); }
  uint64_t limitBytes() const { return limitBytes_; }
  /// What limits it: the name of a setting or of a limit of the process.
  std::string limitInWords() const;

 private:
  struct KnownSegment {
    base::SegmentId id;
    base::Fd object;
    size_t bytes;
  };

  struct Audience {
    SegmentAudience* audience;
    size_t told;  // of segments_, the first ones
  };

  InputArena();
  bool grow(size_t bytes);
  void announceSegmentOf(const void* block);
  void tell(Audience& audience) const;
  void reclaim() noexcept;

  const uint64_t settingBytes_;
  const uint32_t generation_;
  ipc::PageArena arena_;
  const uint64_t limitBytes_;
  std::mutex growMutex_;  // held while segments_ or audiences_ change and audiences are told
  std::vector<KnownSegment> segments_;
  std::vector<Audience> audiences_;
  // The first segment that not all audiences know; 0: they know all. Changed under growMutex_.
  std::atomic<uint32_t> unannounced_{0};
  std::mutex loansMutex_;
  std::vector<ipc::LeaseTable*> loans_;
};

}  // namespace isopool::client
