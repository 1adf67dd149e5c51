// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/obj.h"

namespace torch::deploy {
using isopool::Obj;
}  // namespace torch::deploy

namespace multipy {
/// Alias of torch::deploy: multipy's documentation uses this name, its sources use the other.
namespace runtime = torch::deploy;
}  // namespace multipy
