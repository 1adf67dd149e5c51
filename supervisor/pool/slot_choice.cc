// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/slot_choice.h"

#include <algorithm>
#include <map>

namespace isopool::supervisor {

std::vector<uint32_t> rebalanced(std::vector<uint32_t> own, const std::vector<uint32_t>& slots) {
  std::map<uint32_t, size_t> uses;
  for (const uint32_t slot : slots) uses[slot] = 0;
  for (const uint32_t slot : own) {
    if (const auto found = uses.find(slot); found != uses.end()) ++found->second;
  }
  const auto lessUsed = [&](uint32_t left, uint32_t right) {
    return uses.at(left) < uses.at(right);
  };
  for (uint32_t& slot : own) {
    if (uses.contains(slot)) continue;
    slot = *std::min_element(slots.begin(), slots.end(), lessUsed);
    ++uses[slot];
  }
  for (;;) {
    const uint32_t least = *std::min_element(slots.begin(), slots.end(), lessUsed);
    const uint32_t most = *std::max_element(slots.begin(), slots.end(), lessUsed);
    if (uses[most] - uses[least] < 2) return own;
    *std::find(own.rbegin(), own.rend(), most) = least;
    --uses[most];
    ++uses[least];
  }
}

}  // namespace isopool::supervisor
