// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/roster.h"

#include <algorithm>
#include <utility>

namespace isopool::supervisor {

using base::Epoch;
using base::PoolId;

namespace {

// Calls `visit` on every place, slots first; stops when it returns true.
template <typename Pools, typename Spares, typename Visit>
bool visitPlaces(Pools& pools, Spares& spares, Visit&& visit) {
  for (auto& [pool, places] : pools) {
    for (auto& place : places) {
      if (visit(place)) return true;
    }
  }
  return std::any_of(spares.begin(), spares.end(), visit);
}

}  // namespace

Roster::Roster(RosterEffects& effects, uint32_t spares, const RestartLimits& limits)
    : effects_(effects), spares_(spares), limits_(limits) {}

void Roster::openPool(PoolId pool, uint32_t workers) {
  std::vector<Place>& places = pools_[pool];
  for (uint32_t index = 0; index < workers; ++index) {
    places.push_back(Place{Slot{pool, index}, RestartPolicy(limits_), {}, false, {}, false});
  }
  while (sparePlaces_.size() < spares_) {
    sparePlaces_.push_back(Place{std::nullopt, RestartPolicy(limits_), {}, false, {}, false});
  }
  for (Place& place : places) fill(place);
  for (Place& place : sparePlaces_) {
    if (!place.worker && !place.retryAt) fill(place);
  }
}

void Roster::closePool(PoolId pool) {
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return;
  std::vector<Place> leaving = std::move(found->second);
  pools_.erase(found);
  if (pools_.empty()) {
    std::move(sparePlaces_.begin(), sparePlaces_.end(), std::back_inserter(leaving));
    sparePlaces_.clear();
  }
  for (const Place& place : leaving) {
    if (place.worker) effects_.retireWorker(*place.worker);
  }
}

bool Roster::hasPool(PoolId pool) const { return pools_.count(pool) != 0; }

void Roster::workerUsable(Epoch epoch) {
  Place* place = find(epoch);
  if (place == nullptr || place->usable) return;
  place->usable = true;
  if (place->slot) {
    effects_.assignWorker(*place->slot, epoch);
    return;
  }
  // A spare that is ready before a slot's own worker takes the slot; that one becomes the spare.
  visitPlaces(pools_, sparePlaces_, [&](Place& waiting) {
    if (!waiting.slot || waiting.usable || waiting.retryAt) return false;
    std::swap(waiting.worker, place->worker);
    std::swap(waiting.usable, place->usable);
    effects_.assignWorker(*waiting.slot, epoch);
    return true;
  });
  if (!place->worker) fill(*place);
}

base::Milliseconds Roster::workerLost(Epoch epoch, Death death, base::TimePoint now) {
  Place* place = find(epoch);
  if (place == nullptr) return base::Milliseconds(0);
  place->worker.reset();
  place->usable = false;
  const RestartPolicy::Decision decision = place->policy.died(death, now);
  if (decision.delay == base::Milliseconds(0)) {
    fill(*place);
    return decision.delay;
  }
  place->retryAt = now + decision.delay;
  place->quarantined = decision.quarantined;
  if (!decision.quarantined) return decision.delay;
  const uint32_t deaths = place->policy.barrenDeathsInARow();
  if (place->slot) {
    effects_.slotQuarantined({*place->slot, deaths, decision.delay});
  } else {
    effects_.spareQuarantined(deaths, decision.delay);
  }
  return decision.delay;
}

void Roster::workerNotMade(Epoch epoch) {
  Place* place = find(epoch);
  if (place == nullptr) return;
  place->worker.reset();
  place->usable = false;
  fill(*place);
}

bool Roster::relieve(Epoch epoch) {
  Place* place = find(epoch);
  return place != nullptr && place->slot && place->usable && promoteSpare(*place);
}

void Roster::tick(base::TimePoint now) {
  visitPlaces(pools_, sparePlaces_, [&](Place& place) {
    if (place.retryAt && *place.retryAt <= now) {
      place.retryAt.reset();
      place.quarantined = false;
      fill(place);
    }
    return false;
  });
}

std::optional<base::TimePoint> Roster::nextTick() const {
  std::optional<base::TimePoint> next;
  visitPlaces(pools_, sparePlaces_, [&](const Place& place) {
    if (place.retryAt && (!next || *place.retryAt < *next)) next = place.retryAt;
    return false;
  });
  return next;
}

std::optional<Roster::Seat> Roster::seatOf(Epoch epoch) const {
  const Place* place = find(epoch);
  if (place == nullptr) return std::nullopt;
  return Seat{place->slot, place->usable};
}

std::vector<Slot> Roster::slotsOf(PoolId pool) const {
  std::vector<Slot> slots;
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return slots;
  for (const Place& place : found->second) slots.push_back(*place.slot);
  return slots;
}

std::vector<Slot> Roster::unservedSlots() const {
  std::vector<Slot> unserved;
  visitPlaces(pools_, sparePlaces_, [&](const Place& place) {
    if (place.slot && !place.usable) unserved.push_back(*place.slot);
    return false;
  });
  return unserved;
}

std::vector<Quarantine> Roster::quarantinedSlots(base::TimePoint now) const {
  std::vector<Quarantine> quarantines;
  visitPlaces(pools_, sparePlaces_, [&](const Place& place) {
    if (!place.slot || !place.quarantined) return false;
    const auto left = std::chrono::duration_cast<base::Milliseconds>(*place.retryAt - now);
    quarantines.push_back({*place.slot, place.policy.barrenDeathsInARow(), left});
    return false;
  });
  return quarantines;
}

bool Roster::poolWithoutWorker() const {
  return std::any_of(pools_.begin(), pools_.end(), [](const auto& pool) {
    return std::none_of(pool.second.begin(), pool.second.end(),
                        [](const Place& place) { return place.usable; });
  });
}

void Roster::fill(Place& place) {
  if (place.slot && promoteSpare(place)) return;
  place.worker = effects_.startWorker(!place.slot);
}

bool Roster::promoteSpare(Place& place) {
  const auto spare = std::find_if(sparePlaces_.begin(), sparePlaces_.end(),
                                  [](const Place& candidate) { return candidate.usable; });
  if (spare == sparePlaces_.end()) return false;
  place.worker = std::exchange(spare->worker, std::nullopt);
  place.usable = std::exchange(spare->usable, false);
  effects_.assignWorker(*place.slot, *place.worker);
  fill(*spare);
  return true;
}

Roster::Place* Roster::find(Epoch epoch) {
  return const_cast<Place*>(std::as_const(*this).find(epoch));
}

const Roster::Place* Roster::find(Epoch epoch) const {
  const Place* found = nullptr;
  visitPlaces(pools_, sparePlaces_, [&](const Place& place) {
    if (place.worker != epoch) return false;
    found = &place;
    return true;
  });
  return found;
}

}  // namespace isopool::supervisor
