// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fuzz/mutation.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace isopool::fuzz {

namespace {

// The distributions of std may differ between libraries; a remainder is the same everywhere.
size_t below(size_t limit, std::mt19937_64& random) {
  return limit == 0 ? 0 : static_cast<size_t>(random() % limit);
}

// Mostly short parts, sometimes long ones.
size_t length(size_t most, std::mt19937_64& random) {
  return std::min(most, size_t{1} + below(size_t{1} << below(12, random), random));
}

uint64_t edge(std::mt19937_64& random) {
  constexpr std::array<uint64_t, 16> kEdges{
      0,   1,    2,    31,   32,   33,         127,        128,
      255, 1992, 1993, 4095, 4096, 0x7fffffff, 0x80000000, uint64_t{1} << 63};
  const uint64_t value = kEdges[below(kEdges.size(), random)];
  return random() % 2 == 0 ? value : ~value;
}

void putNumber(Input& input, std::mt19937_64& random) {
  const size_t width = size_t{1} << below(4, random);
  if (input.size() < width) return;
  const size_t at = below(input.size() - width + 1, random);
  uint64_t value = 0;
  std::memcpy(&value, input.data() + at, width);
  const bool near = random() % 2 == 0;
  value = near ? value + below(33, random) - 16 : edge(random);
  std::array<uint8_t, sizeof value> bytes;
  std::memcpy(bytes.data(), &value, sizeof value);
  // The numbers of msgpack are big-endian; our own are little-endian.
  if (random() % 2 == 0) std::reverse(bytes.begin(), bytes.begin() + static_cast<long>(width));
  std::memcpy(input.data() + at, bytes.data(), width);
}

void insertPart(Input& input, const Input& source, std::mt19937_64& random) {
  if (source.empty()) return;
  const size_t from = below(source.size(), random);
  const size_t count = length(source.size() - from, random);
  const Input part(source.begin() + static_cast<long>(from),
                   source.begin() + static_cast<long>(from + count));
  const auto at = static_cast<long>(below(input.size() + 1, random));
  input.insert(input.begin() + at, part.begin(), part.end());
}

void overwritePart(Input& input, const Input& source, std::mt19937_64& random) {
  if (source.empty() || input.empty()) return;
  const size_t from = below(source.size(), random);
  const size_t at = below(input.size(), random);
  const size_t count = length(std::min(source.size() - from, input.size() - at), random);
  std::memmove(input.data() + at, source.data() + from, count);
}

void change(Input& input, const std::vector<Input>& kept, std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      if (!input.empty()) input[below(input.size(), random)] ^= 1u << below(8, random);
      return;
    case 1:
      if (!input.empty()) input[below(input.size(), random)] = static_cast<uint8_t>(random());
      return;
    case 2: {
      if (input.empty()) return;
      const size_t at = below(input.size(), random);
      const size_t count = length(input.size() - at, random);
      input.erase(input.begin() + static_cast<long>(at),
                  input.begin() + static_cast<long>(at + count));
      return;
    }
    case 3:
      return insertPart(input, Input(input), random);
    case 4:
      return insertPart(input, kept[below(kept.size(), random)], random);
    case 5:
      return overwritePart(input, kept[below(kept.size(), random)], random);
    default:
      return putNumber(input, random);
  }
}

}  // namespace

Input mutated(const std::vector<Input>& kept, std::mt19937_64& random) {
  Input input = kept[below(kept.size(), random)];
  for (size_t changes = 1 + below(8, random); changes > 0; --changes) change(input, kept, random);
  if (input.size() > kLongestMutation) input.resize(kLongestMutation);
  return input;
}

}  // namespace isopool::fuzz
