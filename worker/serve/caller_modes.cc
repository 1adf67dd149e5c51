// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/caller_modes.h"

#include <ATen/autocast_mode.h>

namespace isopool::worker {

CallerAutocast::CallerAutocast(uint32_t flags)
    : former_(current()), enabled_((flags & ipc::kAutocast) != 0) {
  apply({enabled_, (flags & ipc::kAutocastUncached) == 0,
         (flags & ipc::kAutocastHalf) != 0 ? at::kHalf : at::kBFloat16});
  // Nested: a context of the model itself must not clear the cache at its end.
  if (enabled_) at::autocast::increment_nesting();
}

CallerAutocast::~CallerAutocast() {
  if (enabled_ && at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  apply(former_);
}

CallerAutocast::State CallerAutocast::current() {
  return {at::autocast::is_autocast_enabled(at::kCPU), at::autocast::is_autocast_cache_enabled(),
          at::autocast::get_autocast_dtype(at::kCPU)};
}

void CallerAutocast::apply(const State& wanted) {
  const State now = current();
  if (now.enabled != wanted.enabled) at::autocast::set_autocast_enabled(at::kCPU, wanted.enabled);
  if (now.dtype != wanted.dtype) at::autocast::set_autocast_dtype(at::kCPU, wanted.dtype);
  if (now.cacheEnabled != wanted.cacheEnabled) {
    at::autocast::set_autocast_cache_enabled(wanted.cacheEnabled);
  }
}

}  // namespace isopool::worker
