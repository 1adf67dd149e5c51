// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/input_versions.h"

#include <algorithm>

namespace isopool::client {

namespace {

// As in one process, where each write increments the counter. The bound is for a worker that
// reports a number beyond reason: autograd only compares for equality.
constexpr uint32_t kMostIncrements = 4096;

void increment(c10::VariableVersion counter, uint32_t times) {
  for (uint32_t i = std::min(times, kMostIncrements); i > 0; --i) counter.bump();
}

}  // namespace

void noteWrites(const ipc::VersionCounters& versions) {
  for (const c10::VariableVersion& counter : versions) {
    if (counter.enabled()) increment(counter, 1);
  }
}

void KeptInputs::note(const ipc::InputReport& report, uint64_t call,
                      const ipc::VersionCounters& versions) {
  const auto own = [&](uint32_t version) -> const c10::VariableVersion& {
    if (version >= versions.size()) throw ipc::ValueError("a report names an unknown input");
    return versions[version];
  };
  for (const auto& [input, times] : report.written) {
    if (input.call == call) {
      // A disabled one belongs to a copy.
      if (own(input.version).enabled()) increment(own(input.version), times);
    } else if (const auto kept = kept_.find(input); kept != kept_.end()) {
      increment(kept->second, times);
    }
  }
  for (const uint32_t version : report.kept) {
    if (own(version).enabled()) kept_.emplace(ipc::InputVersion{call, version}, own(version));
  }
  for (const ipc::InputVersion& input : report.released) kept_.erase(input);
}

void KeptInputs::noteUnknown(uint64_t call, const ipc::VersionCounters& versions) {
  noteWrites(versions);
  for (auto& [input, counter] : kept_) increment(counter, 1);
  for (uint32_t i = 0; i < versions.size(); ++i) {
    if (versions[i].enabled()) kept_.emplace(ipc::InputVersion{call, i}, versions[i]);
  }
}

void KeptInputs::noteDeath() {
  for (auto& [input, counter] : kept_) increment(counter, 1);
  kept_.clear();
}

}  // namespace isopool::client
