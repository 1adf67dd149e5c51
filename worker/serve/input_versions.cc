// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/input_versions.h"

#include <utility>

namespace isopool::worker {

void InputVersions::collect(uint64_t call, ipc::VersionCounters& ofCall, bool keeps,
                            ipc::InputReport& report) {
  if (!kept_.empty()) collectKept(report);
  for (uint32_t i = 0; i < ofCall.size(); ++i) {
    c10::VariableVersion& counter = ofCall[i];
    if (!counter.enabled()) continue;
    // Before the value is read: no tensor is left that could be written to.
    const bool released = counter.unique();
    const uint32_t value = counter.current_version();
    if (value != 0) report.written.push_back({{call, i}, value});
    if (released || !keeps) continue;
    report.kept.push_back(i);
    kept_.push_back({{call, i}, std::move(counter), value});
  }
  ofCall.clear();
}

void InputVersions::collectKept(ipc::InputReport& report) {
  std::erase_if(kept_, [&](Kept& kept) {
    const bool released = kept.counter.unique();
    const uint32_t value = kept.counter.current_version();
    if (value != kept.reported) {
      report.written.push_back({kept.input, value - kept.reported});
      kept.reported = value;
    }
    if (released) report.released.push_back(kept.input);
    return released;
  });
}

}  // namespace isopool::worker
