// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/obj.h"

namespace torch::deploy {
using isopool::Obj;
}  // namespace torch::deploy
