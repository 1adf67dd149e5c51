// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/model_totals.h"

#include <algorithm>
#include <utility>

#include "ipc/control/frame.h"

namespace isopool::supervisor {

namespace {

constexpr size_t kLongestName = 256;
// More than a program makes between two messages, and so few that no sum overflows.
constexpr uint64_t kMostCalls = uint64_t{1} << 40;
constexpr uint64_t kMostMicroseconds = uint64_t{1} << 50;

void check(const ipc::ModelCalls& calls) {
  const bool tooMany = calls.answered > kMostCalls || calls.failed > kMostCalls ||
                       calls.sumMicroseconds > kMostMicroseconds ||
                       std::any_of(calls.times.begin(), calls.times.end(),
                                   [](uint64_t n) { return n > kMostCalls; });
  if (tooMany || calls.times.size() != ipc::kCallTimeBounds.size() + 1) {
    throw ipc::ProtocolError("ReportCalls with impossible counts");
  }
}

template <typename Entries>
auto longestIdle(Entries& entries) {
  return std::min_element(entries.begin(), entries.end(), [](const auto& one, const auto& other) {
    return one.second.lastCall < other.second.lastCall;
  });
}

}  // namespace

void ModelTotals::add(const std::vector<ipc::ModelCalls>& calls, base::TimePoint now) {
  for (const ipc::ModelCalls& each : calls) check(each);
  for (const ipc::ModelCalls& each : calls) {
    Entry& entry = entryOf(each.model.substr(0, kLongestName), now);
    entry.lastCall = now;
    ipc::ModelCalls& sum = entry.calls;
    sum.answered += each.answered;
    sum.failed += each.failed;
    sum.sumMicroseconds += each.sumMicroseconds;
    sum.times.resize(ipc::kCallTimeBounds.size() + 1);
    for (size_t i = 0; i < sum.times.size(); ++i) sum.times[i] += each.times[i];
  }
}

ModelTotals::Entry& ModelTotals::entryOf(const std::string& name, base::TimePoint now) {
  if (const auto found = named_.find(name); found != named_.end()) return found->second;
  if (name == kOthers || !makePlace(now)) {
    others_.calls.model = kOthers;
    return others_;
  }
  Entry& entry = named_[name];
  if (auto former = former_.extract(name)) entry = std::move(former.mapped());
  entry.calls.model = name;
  return entry;
}

// False if all places are taken by names that had a call lately.
bool ModelTotals::makePlace(base::TimePoint now) {
  if (named_.size() < kMostModels) return true;
  const auto idle = longestIdle(named_);
  if (now - idle->second.lastCall < kIdle) return false;
  former_.insert(named_.extract(idle));
  if (former_.size() > kMostFormer) former_.erase(longestIdle(former_));
  return true;
}

std::vector<ipc::ModelCalls> ModelTotals::all() const {
  std::vector<ipc::ModelCalls> list;
  if (!others_.calls.model.empty()) list.push_back(others_.calls);
  for (const auto& [name, entry] : named_) list.push_back(entry.calls);
  return list;
}

}  // namespace isopool::supervisor
