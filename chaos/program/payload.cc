// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/program/payload.h"

namespace chaos {

namespace {

// splitmix64: every bit of the result depends on every bit of the number.
uint64_t mixed(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

uint64_t elementOf(uint64_t nonce, uint64_t index) { return mixed(nonce) + mixed(index); }

}  // namespace

void fillInput(const at::Tensor& x, uint64_t nonce) {
  auto* data = x.data_ptr<int64_t>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    data[i] = static_cast<int64_t>(elementOf(nonce, static_cast<uint64_t>(i)));
  }
}

bool isInput(const at::Tensor& x, uint64_t nonce) {
  const auto* data = x.data_ptr<int64_t>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (static_cast<uint64_t>(data[i]) != elementOf(nonce, static_cast<uint64_t>(i))) return false;
  }
  return true;
}

bool isResult(const at::Tensor& y, uint64_t nonce, int64_t elements) {
  if (y.scalar_type() != at::kLong || y.numel() != elements || !y.is_contiguous()) return false;
  const auto* data = y.data_ptr<int64_t>();
  for (int64_t i = 0; i < elements; ++i) {
    const uint64_t expected = 3 * elementOf(nonce, static_cast<uint64_t>(i)) + nonce;
    if (static_cast<uint64_t>(data[i]) != expected) return false;
  }
  return true;
}

}  // namespace chaos
