// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "ipc/channel/layout.h"
#include "ipc/channel/ring.h"
#include "ipc/channel/shared_memory.h"

namespace isopool::ipc {

/// One lease of a block to the peer, which returns it by this number.
struct Lease {
  uint32_t index = 0;
  uint32_t generation = 0;  ///< never 0 for a real lease
};

/// The lender's private record of the leases of one channel. The borrower returns a lease by
/// storing its generation in the borrower's own LeaseReturns: idempotent and in any order. A
/// hostile borrower can at worst return what was lent to it. Thread-safe. No member blocks.
///
/// The table does not own the blocks: the lender adds a reference to a block before lend() and
/// drops it when the lease has ended. If the borrower dies, its leases end by collectAll() only.
class LeaseTable {
 public:
  /// `returns` is the peer's part of the channel and must outlive the table.
  explicit LeaseTable(const LeaseReturns& returns);

  /// Records that `block` is lent. nullopt if no lease is free: collect() first, or copy. A block
  /// may have several leases.
  std::optional<Lease> lend(const void* block);

  /// Ends the leases that the peer has returned since the last call, and calls `returned` for the
  /// block of each, under the table's lock. Takes a few nanoseconds if no lease was returned.
  template <typename Returned>
  void collect(Returned&& returned) {
    base::MutexLock lock(mutex_);
    for (uint32_t group = 0; group < usedGroups_; ++group) {
      if (returnsCounted<SharedMemory>(returns_.groupReturns[group], seenReturns_[group])) {
        collectGroup(group, returned);
      }
    }
  }

  /// Ends a lease that the peer never saw. False if it has ended already.
  bool cancel(Lease lease);

  /// Ends all leases and calls `returned` for the block of each. Call it only when the peer can
  /// neither read nor write the blocks any more: its pidfd is readable, or it has detached.
  template <typename Returned>
  void collectAll(Returned&& returned) {
    base::MutexLock lock(mutex_);
    for (uint32_t index = 0; index < kLeases; ++index) {
      if (blocks_[index] != nullptr) returned(end(index));
    }
  }

  /// The number of leases that have not ended.
  uint32_t outstanding() const;
  /// The number of leases of `block` that have not ended. Reads the whole table, which takes about
  /// a microsecond.
  uint32_t leasesOf(const void* block) const;

 private:
  const void* end(uint32_t index) ISOPOOL_REQUIRES(mutex_);

  template <typename Returned>
  void collectGroup(uint32_t group, Returned&& returned) ISOPOOL_REQUIRES(mutex_) {
    for (uint32_t index = group * kLeasesPerGroup; index < (group + 1) * kLeasesPerGroup; ++index) {
      if (blocks_[index] == nullptr) continue;
      if (wasGivenBack<SharedMemory>(returns_.returned[index], generations_[index])) {
        returned(end(index));
      }
    }
  }

  const LeaseReturns& returns_;  // shared memory that the borrower writes
  mutable base::Mutex mutex_;
  std::vector<uint32_t> free_
      ISOPOOL_GUARDED_BY(mutex_);  // indices of the leases that can be given; the last is next
  uint32_t usedGroups_ ISOPOOL_GUARDED_BY(mutex_) =
      0;  // groups from here on have never had a lease
  std::array<uint32_t, kLeaseGroups> seenReturns_
      ISOPOOL_GUARDED_BY(mutex_){};  // the hints at the last collect()
  std::array<uint32_t, kLeases> generations_
      ISOPOOL_GUARDED_BY(mutex_){};  // of each lease's last use
  std::array<const void*, kLeases> blocks_ ISOPOOL_GUARDED_BY(mutex_){};  // null: the lease is free
};

/// The borrower's side: returns a lease. Any thread may call it; it only stores to shared words.
/// From then on the borrower must not touch the block. Ignores an index that is too large: it may
/// come from the peer.
void returnLease(LeaseReturns& returns, Lease lease) noexcept;

}  // namespace isopool::ipc
