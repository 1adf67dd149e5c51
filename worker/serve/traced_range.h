// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <string>

#include "base/ids.h"

namespace isopool::worker {

/// A range of torch.profiler around the user code of one call, named by the call's number, by which
/// the client finds it. Takes nanoseconds if no profiler runs. To be destroyed on the same thread.
class TracedRange {
 public:
  TracedRange(base::Epoch epoch, uint64_t sequence) : range_(at::RecordScope::USER_SCOPE) {
    if (!range_.isActive()) return;
    // python/tracing.py looks for this name.
    range_.before("isopool call " + std::to_string(epoch.value) + ":" + std::to_string(sequence));
  }

 private:
  at::RecordFunction range_;
};

}  // namespace isopool::worker
