// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/noop_environment.h"
#include "multipy/runtime/environment.h"

namespace torch::deploy {
using isopool::NoopEnvironment;
}  // namespace torch::deploy
