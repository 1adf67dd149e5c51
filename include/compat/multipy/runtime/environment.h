// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/environment.h"

namespace torch::deploy {
using isopool::Environment;
using isopool::Interpreter;
}  // namespace torch::deploy

namespace multipy {
/// Alias of torch::deploy: multipy's documentation uses this name, its sources use the other.
namespace runtime = torch::deploy;
}  // namespace multipy
