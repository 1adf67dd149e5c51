// SPDX-License-Identifier: BSD-3-Clause
#include "client/program/caller_modes.h"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "base/denormal_modes.h"
#include "ipc/channel/operation.h"

namespace isopool::client {

uint32_t callerModes() {
  uint32_t flags = 0;
  if (c10::GradMode::is_enabled()) flags |= ipc::kGradEnabled;
  if (c10::InferenceMode::is_enabled()) flags |= ipc::kInferenceMode;
  // Sent even while autocast is off: torch.autocast("cpu") in the worker then uses this type.
  const at::ScalarType type = at::autocast::get_autocast_dtype(at::kCPU);
  if (type == at::kHalf) flags |= ipc::kAutocastHalf;
  // Autocast on the CPU supports two types; with another one torch itself turns it off.
  if ((type == at::kHalf || type == at::kBFloat16) && at::autocast::is_autocast_enabled(at::kCPU)) {
    flags |= ipc::kAutocast;
  }
  if (!at::autocast::is_autocast_cache_enabled()) flags |= ipc::kAutocastUncached;
  const base::DenormalModes denormals = base::denormalModes();
  if (denormals.flushToZero) flags |= ipc::kFlushToZero;
  if (denormals.denormalsAreZero) flags |= ipc::kDenormalsAreZero;
  return flags;
}

}  // namespace isopool::client
