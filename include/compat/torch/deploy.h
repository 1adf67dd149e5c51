// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// torch/deploy.h as programs of PyTorch 1.11's torch::deploy include it, over isopool.
#include "multipy/runtime/deploy.h"
#include "multipy/runtime/path_environment.h"
