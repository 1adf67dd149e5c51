// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/slot_table.h"

#include <algorithm>
#include <utility>

namespace isopool::supervisor {

using base::Epoch;
using base::PoolId;

namespace {

// Calls `visit` on every place, slots first; stops when it returns true.
template <typename Pools, typename Spares, typename Visit>
bool visitEntries(Pools& pools, Spares& spares, Visit&& visit) {
  for (auto& [pool, entries] : pools) {
    for (auto& entry : entries) {
      if (visit(entry)) return true;
    }
  }
  return std::any_of(spares.begin(), spares.end(), visit);
}

}  // namespace

std::string Quarantine::text() const {
  return "slot " + std::to_string(slot.index) + " stays empty for " +
         std::to_string(duration.count()) + " ms: its last " + std::to_string(deaths) +
         " workers died before they completed a call (ISOPOOL_RESTART_LIMIT, ISOPOOL_QUARANTINE)";
}

SlotTable::SlotTable(SlotTableEffects& effects, uint32_t spares, const RestartLimits& limits,
                     uint32_t gpus)
    : effects_(effects), spares_(spares), limits_(limits), gpus_(gpus) {}

void SlotTable::openPool(PoolId pool, uint32_t workers) {
  std::vector<SlotEntry>& entries = pools_[pool];
  for (uint32_t index = 0; index < workers; ++index) {
    entries.push_back(newEntry(Slot{pool, index}, gpuWithFewestSlots()));
  }
  for (SlotEntry& entry : entries) fill(entry);
  adjustSpares();
}

void SlotTable::closePool(PoolId pool) {
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return;
  std::vector<SlotEntry> leaving = std::move(found->second);
  pools_.erase(found);
  if (pools_.empty()) {
    std::move(spareEntries_.begin(), spareEntries_.end(), std::back_inserter(leaving));
    spareEntries_.clear();
  }
  for (const SlotEntry& entry : leaving) {
    if (entry.worker) effects_.retireWorker(*entry.worker);
  }
}

std::vector<Epoch> SlotTable::resizePool(PoolId pool, uint32_t workers) {
  std::vector<SlotEntry>& entries = pools_.at(pool);
  std::vector<Epoch> leaving;
  while (entries.size() > workers) {
    const SlotEntry last = std::move(entries.back());
    entries.pop_back();
    if (!last.worker) continue;
    if (last.usable) {
      leaving.push_back(*last.worker);
    } else {
      effects_.retireWorker(*last.worker);
    }
  }
  while (entries.size() < workers) {
    const auto index = static_cast<uint32_t>(entries.size());
    entries.push_back(newEntry(Slot{pool, index}, gpuWithFewestSlots()));
    fill(entries.back());
  }
  adjustSpares();
  return leaving;
}

bool SlotTable::hasPool(PoolId pool) const { return pools_.count(pool) != 0; }

void SlotTable::workerUsable(Epoch epoch) {
  SlotEntry* entry = find(epoch);
  if (entry == nullptr || entry->usable) return;
  entry->usable = true;
  if (entry->slot) {
    effects_.assignWorker(*entry->slot, epoch);
    return;
  }
  // If a spare is ready before the slot's own worker, the spare takes the slot, and the slot's
  // worker becomes the spare.
  visitEntries(pools_, spareEntries_, [&](SlotEntry& waiting) {
    if (!waiting.slot || waiting.usable || waiting.retryAt || waiting.gpu != entry->gpu) {
      return false;
    }
    std::swap(waiting.worker, entry->worker);
    std::swap(waiting.usable, entry->usable);
    effects_.assignWorker(*waiting.slot, epoch);
    return true;
  });
  if (!entry->worker) fill(*entry);
}

base::Milliseconds SlotTable::workerLost(Epoch epoch, ExitKind death, base::TimePoint now) {
  SlotEntry* entry = find(epoch);
  if (entry == nullptr) return base::Milliseconds(0);
  entry->worker.reset();
  entry->usable = false;
  const RestartPolicy::Decision decision = entry->policy.died(death, now);
  if (decision.delay == base::Milliseconds(0)) {
    fill(*entry);
    return decision.delay;
  }
  entry->retryAt = now + decision.delay;
  entry->quarantined = decision.quarantined;
  if (!decision.quarantined) return decision.delay;
  const uint32_t deaths = entry->policy.earlyExitsInARow();
  if (entry->slot) {
    effects_.slotQuarantined({*entry->slot, deaths, decision.delay});
  } else {
    effects_.spareQuarantined(deaths, decision.delay);
  }
  return decision.delay;
}

void SlotTable::workerNotMade(Epoch epoch) {
  SlotEntry* entry = find(epoch);
  if (entry == nullptr) return;
  entry->worker.reset();
  entry->usable = false;
  fill(*entry);
}

bool SlotTable::relieve(Epoch epoch) {
  SlotEntry* entry = find(epoch);
  if (entry == nullptr || !entry->slot || !entry->usable) return false;
  if (promoteSpare(*entry)) return true;
  const bool hasSpare =
      std::any_of(spareEntries_.begin(), spareEntries_.end(),
                  [&](const SlotEntry& candidate) { return candidate.gpu == entry->gpu; });
  if (!hasSpare) {
    // It leaves the table with the slot that it takes: promoteSpare().
    spareEntries_.push_back(newEntry(std::nullopt, entry->gpu));
    fill(spareEntries_.back());
  }
  return false;
}

void SlotTable::tick(base::TimePoint now) {
  visitEntries(pools_, spareEntries_, [&](SlotEntry& entry) {
    if (entry.retryAt && *entry.retryAt <= now) {
      entry.retryAt.reset();
      entry.quarantined = false;
      fill(entry);
    }
    return false;
  });
}

std::optional<base::TimePoint> SlotTable::nextTick() const {
  std::optional<base::TimePoint> next;
  visitEntries(pools_, spareEntries_, [&](const SlotEntry& entry) {
    if (entry.retryAt && (!next || *entry.retryAt < *next)) next = entry.retryAt;
    return false;
  });
  return next;
}

std::optional<SlotTable::SlotAssignment> SlotTable::assignmentOf(Epoch epoch) const {
  const SlotEntry* entry = find(epoch);
  if (entry == nullptr) return std::nullopt;
  return SlotAssignment{entry->slot, entry->usable};
}

std::vector<Slot> SlotTable::slotsOf(PoolId pool) const {
  std::vector<Slot> slots;
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return slots;
  for (const SlotEntry& entry : found->second) slots.push_back(*entry.slot);
  return slots;
}

std::vector<Slot> SlotTable::unservedSlots() const {
  std::vector<Slot> unserved;
  visitEntries(pools_, spareEntries_, [&](const SlotEntry& entry) {
    if (entry.slot && !entry.usable) unserved.push_back(*entry.slot);
    return false;
  });
  return unserved;
}

std::vector<Quarantine> SlotTable::quarantinedSlots(base::TimePoint now) const {
  std::vector<Quarantine> quarantines;
  visitEntries(pools_, spareEntries_, [&](const SlotEntry& entry) {
    if (!entry.slot || !entry.quarantined) return false;
    const auto left = std::chrono::duration_cast<base::Milliseconds>(*entry.retryAt - now);
    quarantines.push_back({*entry.slot, entry.policy.earlyExitsInARow(), left});
    return false;
  });
  return quarantines;
}

bool SlotTable::poolWithoutWorker() const {
  return std::any_of(pools_.begin(), pools_.end(), [](const auto& pool) {
    return std::none_of(pool.second.begin(), pool.second.end(),
                        [](const SlotEntry& entry) { return entry.usable; });
  });
}

SlotTable::SlotEntry SlotTable::newEntry(std::optional<Slot> slot, uint32_t gpu) const {
  return {.slot = slot, .gpu = gpu, .policy = RestartPolicy(limits_), .worker = {}, .retryAt = {}};
}

uint32_t SlotTable::gpuWithFewestSlots() const {
  std::vector<uint32_t> slots(gpus_);
  for (const auto& [pool, entries] : pools_) {
    for (const SlotEntry& entry : entries) ++slots[entry.gpu];
  }
  return static_cast<uint32_t>(std::min_element(slots.begin(), slots.end()) - slots.begin());
}

void SlotTable::adjustSpares() {
  if (spares_ == 0) return;
  for (uint32_t gpu = 0; gpu < gpus_; ++gpu) {
    const auto isOfIt = [&](const SlotEntry& entry) { return entry.gpu == gpu; };
    const bool used = std::any_of(pools_.begin(), pools_.end(), [&](const auto& pool) {
      return std::any_of(pool.second.begin(), pool.second.end(), isOfIt);
    });
    if (used) {
      auto spares = std::count_if(spareEntries_.begin(), spareEntries_.end(), isOfIt);
      for (; spares < spares_; ++spares) spareEntries_.push_back(newEntry(std::nullopt, gpu));
    } else {
      std::erase_if(spareEntries_, [&](const SlotEntry& entry) {
        if (!isOfIt(entry)) return false;
        if (entry.worker) effects_.retireWorker(*entry.worker);
        return true;
      });
    }
  }
  for (SlotEntry& entry : spareEntries_) {
    if (!entry.worker && !entry.retryAt) fill(entry);
  }
}

void SlotTable::fill(SlotEntry& entry) {
  if (entry.slot && promoteSpare(entry)) return;
  entry.worker = effects_.startWorker(!entry.slot, entry.gpu);
}

bool SlotTable::promoteSpare(SlotEntry& entry) {
  const auto spare = std::find_if(
      spareEntries_.begin(), spareEntries_.end(),
      [&](const SlotEntry& candidate) { return candidate.usable && candidate.gpu == entry.gpu; });
  if (spare == spareEntries_.end()) return false;
  entry.worker = std::exchange(spare->worker, std::nullopt);
  entry.usable = std::exchange(spare->usable, false);
  effects_.assignWorker(*entry.slot, *entry.worker);
  if (spares_ == 0) {
    spareEntries_.erase(spare);
  } else {
    fill(*spare);
  }
  return true;
}

SlotTable::SlotEntry* SlotTable::find(Epoch epoch) {
  return const_cast<SlotEntry*>(std::as_const(*this).find(epoch));
}

const SlotTable::SlotEntry* SlotTable::find(Epoch epoch) const {
  const SlotEntry* found = nullptr;
  visitEntries(pools_, spareEntries_, [&](const SlotEntry& entry) {
    if (entry.worker != epoch) return false;
    found = &entry;
    return true;
  });
  return found;
}

}  // namespace isopool::supervisor
