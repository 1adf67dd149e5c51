// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace isopool::fuzz {

using Input = std::vector<uint8_t>;

/// The longest input that a mutation makes, in bytes.
inline constexpr size_t kLongestMutation = size_t{64} << 10;

/// One of the kept inputs, changed at one to eight places: bits, numbers that are at an edge, parts
/// left out, doubled, or taken from another kept input. The same generator makes the same inputs.
/// `kept` must not be empty.
Input mutated(const std::vector<Input>& kept, std::mt19937_64& random);

}  // namespace isopool::fuzz
