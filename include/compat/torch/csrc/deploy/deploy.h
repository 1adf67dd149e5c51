// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// The header of torch::deploy under its name in PyTorch 1.12 and 1.13, as aliases of isopool's
/// classes.
#include "multipy/runtime/deploy.h"
