// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/class_totals.h"

#include <utility>

namespace isopool::supervisor {

namespace {

void advanceOne(uint64_t& total, uint64_t& before, uint64_t now) {
  if (now <= before) return;
  total += now - std::exchange(before, now);
}

}  // namespace

void ClassTotals::advance(ClassTotals& before, const ClassTotals& now) {
  advanceOne(connections, before.connections, now.connections);
  advanceOne(completedCalls, before.completedCalls, now.completedCalls);
  advanceOne(overdueCalls, before.overdueCalls, now.overdueCalls);
  for (size_t limit = 0; limit < refusals.size(); ++limit) {
    advanceOne(refusals[limit], before.refusals[limit], now.refusals[limit]);
  }
}

}  // namespace isopool::supervisor
