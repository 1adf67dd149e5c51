// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "ipc/channel/layout.h"
#include "ipc/channel/ring.h"
#include "ipc/channel/shared_memory.h"

namespace isopool::ipc {

/// A loan of one block to the peer: the number under which the peer gives it back.
struct Lease {
  uint32_t index = 0;
  uint32_t generation = 0;  ///< never 0 for a real lease
};

/// The lender's private books of what it lent over one channel. The borrower gives back by storing
/// the generation in its own LeaseReturns: idempotent, in any order, and a hostile borrower can at
/// worst give back what was lent to it. Thread-safe.
class LeaseTable {
 public:
  /// `returns` is the peer's part of the channel and must outlive the table.
  explicit LeaseTable(const LeaseReturns& returns);

  /// Notes that `block` is lent; nullopt if all leases are out.
  std::optional<Lease> lend(const void* block);

  /// Takes back what the peer has returned since the last time, calling `returned` for each block.
  /// A few nanoseconds if nothing came back.
  template <typename Returned>
  void collect(Returned&& returned) {
    std::lock_guard lock(mutex_);
    for (uint32_t group = 0; group < usedGroups_; ++group) {
      if (returnsCounted<SharedMemory>(returns_.groupReturns[group], seenReturns_[group])) {
        collectGroup(group, returned);
      }
    }
  }

  /// Ends one loan without the peer: for one that it never saw. False if it had ended already.
  bool cancel(Lease lease);

  /// Calls `returned` for every block still lent and forgets it. Only when the peer can neither
  /// read nor write the blocks any more: its pidfd is readable, or it has detached.
  template <typename Returned>
  void collectAll(Returned&& returned) {
    std::lock_guard lock(mutex_);
    for (uint32_t index = 0; index < kLeases; ++index) {
      if (blocks_[index] != nullptr) returned(end(index));
    }
  }

  uint32_t outstanding() const;
  /// How many leases of `block` are out. Looks at all of them: about a microsecond.
  uint32_t leasesOf(const void* block) const;

 private:
  const void* end(uint32_t index);

  template <typename Returned>
  void collectGroup(uint32_t group, Returned&& returned) {
    for (uint32_t index = group * kLeasesPerGroup; index < (group + 1) * kLeasesPerGroup; ++index) {
      if (blocks_[index] == nullptr) continue;
      if (wasGivenBack<SharedMemory>(returns_.returned[index], generations_[index])) {
        returned(end(index));
      }
    }
  }

  const LeaseReturns& returns_;
  mutable std::mutex mutex_;
  std::vector<uint32_t> free_;
  uint32_t usedGroups_ = 0;  // all leases ever lent lie in the groups before it
  std::array<uint32_t, kLeaseGroups> seenReturns_{};
  std::array<uint32_t, kLeases> generations_{};
  std::array<const void*, kLeases> blocks_{};
};

/// The borrower's side: gives a lease back. Any thread; the store is the whole act.
void returnLease(LeaseReturns& returns, Lease lease) noexcept;

}  // namespace isopool::ipc
