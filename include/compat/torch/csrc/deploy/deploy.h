// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// torch::deploy's headers as PyTorch 1.12 and 1.13 had them, over isopool.
#include "multipy/runtime/deploy.h"
