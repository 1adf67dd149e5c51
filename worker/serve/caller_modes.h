// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "ipc/channel/operation.h"

namespace isopool::worker {

/// Sets the thread's autocast on the CPU as `flags` (ipc/channel/operation.h) request; the
/// destructor restores the former state. To be destroyed on the same thread.
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

/// Applies the caller's grad mode, inference mode and autocast to this thread while it lives. To be
/// destroyed on the same thread.
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
