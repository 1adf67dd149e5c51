// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/environment.h"

namespace torch::deploy {
using isopool::Environment;
using isopool::Interpreter;
}  // namespace torch::deploy
