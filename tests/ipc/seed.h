// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <random>

namespace isopool::tests {

/// The random numbers of one test. The seed is new in every run and is printed, so that a failed
/// run can be repeated with ISOPOOL_TEST_SEED=N.
std::mt19937_64 seededRandom();

/// An integer of [least, most].
template <typename Integer>
Integer pick(std::mt19937_64& random, Integer least, Integer most) {
  return std::uniform_int_distribution<Integer>(least, most)(random);
}

}  // namespace isopool::tests
