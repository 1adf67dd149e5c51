// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>
#include <optional>

#include "ipc/channel/operation.h"

namespace isopool::worker {

/// The caller's modes, in force while user code runs for it.
class CallerModes {
 public:
  explicit CallerModes(uint32_t flags) : grad_((flags & ipc::kGradEnabled) != 0) {
    if ((flags & ipc::kInferenceMode) != 0) inference_.emplace(true);
  }

 private:
  at::AutoGradMode grad_;
  std::optional<c10::InferenceMode> inference_;
};

}  // namespace isopool::worker
