// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/output_trim.h"

#include <algorithm>

#include "ipc/channel/futex.h"
#include "worker/python/released_gil.h"

namespace isopool::worker {

namespace {

// In ns. The caller comes so much too early at most, because its clock is coarse.
constexpr int64_t kEarly = 10'000'000;

// In ns. A worker without idle time gives 2 % of it to a trim, which returns 100 MB in a second.
constexpr int64_t kBetweenSteps = kEarly + 10'000'000;

}  // namespace

void OutputTrim::grown(int64_t now) noexcept {
  if (idleAt_ == 0) idleAt_ = now + kIdleTime.count();
}

void OutputTrim::request(ClientLink& channel, int64_t now) noexcept {
  channel.trim = ipc::TrimRule::kAll;
  stepAt_ = now;
}

std::optional<int64_t> OutputTrim::due() const noexcept {
  if (stepAt_ == 0 && idleAt_ == 0) return std::nullopt;
  if (stepAt_ == 0 || idleAt_ == 0) return std::max(stepAt_, idleAt_);
  return std::min(stepAt_, idleAt_);
}

void OutputTrim::run(std::span<const std::unique_ptr<ClientLink>> channels,
                     const std::function<bool()>& interrupted) {
  const int64_t now = ipc::monotonicNow();
  if (idleAt_ != 0 && now >= idleAt_ - kEarly) {
    for (const auto& channel : channels) {
      if (!channel->trim) channel->trim = ipc::TrimRule::kIdle;
    }
    idleAt_ = now + kIdleTime.count();
  }
  stepAt_ = 0;
  bool again = false;
  for (const auto& channel : channels) {
    OutputBlocks& output = channel->memory->output;
    if (channel->trim) output.collectReturned();
    while (channel->trim) {
      if (!output.trimStep(*channel->trim)) channel->trim.reset();
      if (interrupted()) {
        stepAt_ = ipc::monotonicNow() + kBetweenSteps;
        return;
      }
      const ReleasedGil forOtherThreads;
    }
    again = again || output.mayBeTrimmed();
  }
  if (!again) idleAt_ = 0;
}

}  // namespace isopool::worker
