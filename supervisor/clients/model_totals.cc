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

}  // namespace

void ModelTotals::add(const std::vector<ipc::ModelCalls>& calls) {
  for (const ipc::ModelCalls& each : calls) check(each);
  for (const ipc::ModelCalls& each : calls) addOne(each);
}

void ModelTotals::take(ModelTotals& others) {
  for (const auto& [name, calls] : std::exchange(others.byName_, {})) addOne(calls);
}

void ModelTotals::addOne(const ipc::ModelCalls& calls) {
  std::string name = calls.model.substr(0, kLongestName);
  if (byName_.size() >= kMostModels && !byName_.contains(name)) name = kOthers;
  ipc::ModelCalls& sum = byName_[name];
  sum.model = name;
  sum.answered += calls.answered;
  sum.failed += calls.failed;
  sum.sumMicroseconds += calls.sumMicroseconds;
  sum.times.resize(ipc::kCallTimeBounds.size() + 1);
  for (size_t i = 0; i < sum.times.size(); ++i) sum.times[i] += calls.times[i];
}

std::vector<ipc::ModelCalls> ModelTotals::all() const {
  std::vector<ipc::ModelCalls> list;
  for (const auto& [name, calls] : byName_) list.push_back(calls);
  return list;
}

}  // namespace isopool::supervisor
