// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/lease_table.h"

#include <algorithm>

namespace isopool::ipc {

LeaseTable::LeaseTable(const LeaseReturns& returns) : returns_(returns) {
  // Low numbers first, and the lease that was returned last is lent next: so few groups are used.
  free_.reserve(kLeases);
  for (uint32_t index = kLeases; index > 0; --index) free_.push_back(index - 1);
}

std::optional<Lease> LeaseTable::lend(const void* block) {
  base::MutexLock lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const uint32_t index = free_.back();
  free_.pop_back();
  if (++generations_[index] == 0) generations_[index] = 1;
  blocks_[index] = block;
  usedGroups_ = std::max(usedGroups_, index / kLeasesPerGroup + 1);
  return Lease{index, generations_[index]};
}

bool LeaseTable::cancel(Lease lease) {
  base::MutexLock lock(mutex_);
  if (lease.index >= kLeases || generations_[lease.index] != lease.generation ||
      blocks_[lease.index] == nullptr) {
    return false;
  }
  end(lease.index);
  return true;
}

const void* LeaseTable::end(uint32_t index) {
  const void* block = blocks_[index];
  blocks_[index] = nullptr;
  free_.push_back(index);
  return block;
}

uint32_t LeaseTable::leasesOf(const void* block) const {
  base::MutexLock lock(mutex_);
  uint32_t count = 0;
  for (const void* lent : blocks_) count += lent == block ? 1 : 0;
  return count;
}

uint32_t LeaseTable::outstanding() const {
  base::MutexLock lock(mutex_);
  return kLeases - static_cast<uint32_t>(free_.size());
}

void returnLease(LeaseReturns& returns, Lease lease) noexcept {
  if (lease.index >= kLeases) return;
  giveBack<SharedMemory>(returns.returned[lease.index],
                         returns.groupReturns[lease.index / kLeasesPerGroup], lease.generation);
}

}  // namespace isopool::ipc
