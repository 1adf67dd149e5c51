// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "base/denormal_modes.h"
#include "ipc/channel/operation.h"
#include "worker/serve/operation_threads.h"

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

/// Adds the caller's treatment of denormal numbers, as `flags` request, to the thread's own, and
/// that of torch's other threads: what a model has turned on while it was loaded stays on. The
/// destructor restores the thread's former state. To be destroyed on the same thread.
class CallerDenormals {
 public:
  explicit CallerDenormals(uint32_t flags) : former_(base::denormalModes()) {
    const base::DenormalModes wanted{
        former_.flushToZero || (flags & ipc::kFlushToZero) != 0,
        former_.denormalsAreZero || (flags & ipc::kDenormalsAreZero) != 0};
    if (wanted != former_) base::setDenormalModes(wanted);
    matchOperationThreads();
  }
  CallerDenormals(const CallerDenormals&) = delete;
  CallerDenormals& operator=(const CallerDenormals&) = delete;
  ~CallerDenormals() {
    if (base::denormalModes() != former_) base::setDenormalModes(former_);
  }

 private:
  base::DenormalModes former_;
};

/// Applies the caller's grad mode, inference mode, autocast and treatment of denormal numbers to
/// this thread while it lives. To be destroyed on the same thread.
class CallerModes {
 public:
  explicit CallerModes(uint32_t flags)
      : grad_((flags & ipc::kGradEnabled) != 0), autocast_(flags), denormals_(flags) {
    if ((flags & ipc::kInferenceMode) != 0) inference_.emplace(true);
  }

 private:
  at::AutoGradMode grad_;
  CallerAutocast autocast_;
  CallerDenormals denormals_;
  std::optional<c10::InferenceMode> inference_;
};

}  // namespace isopool::worker
