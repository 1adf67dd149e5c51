// SPDX-License-Identifier: BSD-3-Clause
// Occupies all processors: one computing thread for each.
#include <thread>
#include <vector>

#include "chaos/nemesis/nemesis.h"

namespace chaos {

void Nemesis::occupyProcessors(const Attack& attack) {
  const auto end = std::chrono::steady_clock::now() + attack.length;
  std::vector<std::thread> hogs;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    hogs.emplace_back([end] {
      while (std::chrono::steady_clock::now() < end) {
      }
    });
  }
  for (std::thread& hog : hogs) hog.join();
  ++counts_.byFamily[static_cast<size_t>(attack.family)];
}

}  // namespace chaos
