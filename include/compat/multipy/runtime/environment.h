// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/environment.h"

namespace torch::deploy {
using isopool::Environment;
using isopool::Interpreter;
}  // namespace torch::deploy

namespace multipy {
/// The second name of everything here: multipy's documents use this one, its sources the first.
namespace runtime = torch::deploy;
}  // namespace multipy
