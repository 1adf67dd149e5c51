// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace chaos {

/// Fills a contiguous int64 tensor with numbers that no other nonce's tensor has.
void fillInput(const at::Tensor& x, uint64_t nonce);
/// True if `x` still has the content that fillInput() wrote.
bool isInput(const at::Tensor& x, uint64_t nonce);
/// True if `y` is, bit for bit, the model's result for that input: 3 * x + nonce.
bool isResult(const at::Tensor& y, uint64_t nonce, int64_t elements);

}  // namespace chaos
