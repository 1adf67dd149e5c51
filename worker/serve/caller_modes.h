// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "ipc/channel/operation.h"

namespace isopool::worker {

/// The thread's autocast on the CPU, as the flags say as long as this lives and then as it was.
class CallerAutocast {
 public:
  explicit CallerAutocast(uint32_t flags);
  CallerAutocast(const CallerAutocast&) = delete;
  CallerAutocast& operator=(const CallerAutocast&) = delete;
  ~CallerAutocast();

 private:
  struct State {
    bool enabled;
    bool cacheEnabled;
    at::ScalarType dtype;
  };
  static State current();
  static void apply(const State& wanted);

  State former_;
  bool enabled_;
};

/// The caller's modes, in force while user code runs for it.
class CallerModes {
 public:
  explicit CallerModes(uint32_t flags) : grad_((flags & ipc::kGradEnabled) != 0), autocast_(flags) {
    if ((flags & ipc::kInferenceMode) != 0) inference_.emplace(true);
  }

 private:
  at::AutoGradMode grad_;
  CallerAutocast autocast_;
  std::optional<c10::InferenceMode> inference_;
};

}  // namespace isopool::worker
