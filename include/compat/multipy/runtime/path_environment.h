// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/path_environment.h"
#include "multipy/runtime/environment.h"

namespace torch::deploy {
using isopool::PathEnvironment;
}  // namespace torch::deploy
