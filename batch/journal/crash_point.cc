// SPDX-License-Identifier: BSD-3-Clause
#include "batch/journal/crash_point.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>

namespace isopool::batch {

namespace {

struct Chosen {
  std::string name;
  std::atomic<long> visitsLeft{0};

  Chosen() {
    const char* const text = std::getenv("ISOPOOL_BATCH_CRASH_AT");
    if (text == nullptr) return;
    name = text;
    const size_t colon = name.rfind(':');
    visitsLeft = colon == std::string::npos ? 1 : std::atol(name.c_str() + colon + 1);
    name.resize(std::min(colon, name.size()));
  }
};

}  // namespace

void crashPoint(std::string_view name) {
  static Chosen chosen;
  if (!chosen.name.empty() && chosen.name == name && --chosen.visitsLeft == 0) {
    std::raise(SIGKILL);
  }
}

}  // namespace isopool::batch
