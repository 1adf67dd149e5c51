// SPDX-License-Identifier: BSD-3-Clause
#include "tests/ipc/seed.h"

#include <cstdlib>
#include <iostream>
#include <string>

namespace isopool::tests {

std::mt19937_64 seededRandom() {
  const char* wanted = std::getenv("ISOPOOL_TEST_SEED");
  std::random_device device;
  const uint64_t seed = wanted != nullptr ? std::stoull(wanted) : uint64_t{device()};
  std::cout << "ISOPOOL_TEST_SEED=" << seed << std::endl;  // flushed: the test may crash
  return std::mt19937_64(seed);
}

}  // namespace isopool::tests
