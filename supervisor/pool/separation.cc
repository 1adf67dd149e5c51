// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/separation.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace isopool::supervisor {

bool Separation::died(const std::set<ClientId>& ran, size_t slots, base::TimePoint now) {
  if (slots < 2) return false;
  bool ofOneApart = false;
  for (auto& [client, until] : apart_) {
    if (ran.count(client) == 0) continue;
    until = now + limits_.quarantine;
    ofOneApart = true;
  }
  if (ofOneApart) return false;
  if (ran.size() < 2 && suspects_.empty()) return false;
  for (const ClientId client : ran) {
    if (formerlyApart_.count(client) != 0) return setApart(client, now);
  }
  std::set<ClientId> suspects;
  std::set_intersection(ran.begin(), ran.end(), suspects_.begin(), suspects_.end(),
                        std::inserter(suspects, suspects.end()));
  if (!suspects.empty()) {
    // Suspects of different slots: the worker is from before, and shows nothing new.
    const std::vector<uint32_t> slotsOfFirst = slotsOf(*suspects.begin(), slots);
    const bool ofOnePart = std::all_of(suspects.begin(), suspects.end(), [&](ClientId client) {
      return slotsOf(client, slots) == slotsOfFirst;
    });
    if (!ofOnePart) return false;
    if (suspects.size() == 1) return setApart(*suspects.begin(), now);
    suspectsUntil_ = now + limits_.quarantine;
    return std::exchange(suspects_, suspects) != suspects;
  }
  if (ran.size() < 2) return false;
  deaths_.push_back(now);
  while (now - deaths_.front() > limits_.window) deaths_.pop_front();
  if (deaths_.size() < kDeaths) return false;
  deaths_.clear();
  suspects_ = ran;
  suspectsUntil_ = now + limits_.quarantine;
  return true;
}

bool Separation::setApart(ClientId client, base::TimePoint now) {
  suspects_.clear();
  deaths_.clear();
  apart_[client] = now + limits_.quarantine;
  formerlyApart_.insert(client);
  return true;
}

bool Separation::tick(base::TimePoint now) {
  const bool suspectsOver = !suspects_.empty() && suspectsUntil_ <= now;
  if (suspectsOver) suspects_.clear();
  const size_t over = std::erase_if(apart_, [&](const auto& entry) { return entry.second <= now; });
  return suspectsOver || over != 0;
}

std::optional<base::TimePoint> Separation::nextTick() const {
  std::optional<base::TimePoint> next;
  if (!suspects_.empty()) next = suspectsUntil_;
  for (const auto& [client, until] : apart_) {
    if (!next || until < *next) next = until;
  }
  return next;
}

bool Separation::forget(ClientId client) {
  formerlyApart_.erase(client);
  const bool wasSuspect = suspects_.erase(client) != 0;
  if (suspects_.size() < 2) suspects_.clear();
  return apart_.erase(client) != 0 || wasSuspect;
}

std::vector<uint32_t> Separation::slotsOf(ClientId client, size_t slots) const {
  std::vector<uint32_t> chosen;
  const uint32_t first = apart_.empty() || slots < 2 ? 0 : 1;
  if (first == 1 && isApart(client)) return {0};
  // One part more than there are suspects, for the clients that are none.
  const size_t parts = std::min(suspects_.empty() ? 1 : suspects_.size() + 1, slots - first);
  const auto found = suspects_.find(client);
  const size_t part = found == suspects_.end()
                          ? parts - 1
                          : static_cast<size_t>(std::distance(suspects_.begin(), found)) % parts;
  for (uint32_t slot = first; slot < slots; ++slot) {
    if ((slot - first) % parts == part) chosen.push_back(slot);
  }
  return chosen;
}

}  // namespace isopool::supervisor
