// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <system_error>

namespace isopool::tests {

/// The number of context switches of all threads of a process, except the thread `without`.
inline uint64_t contextSwitchesOf(pid_t process, pid_t without = 0) {
  uint64_t sum = 0;
  std::error_code gone;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    if (thread.path().filename() == std::to_string(without)) continue;
    std::ifstream status(thread.path() / "status");
    for (std::string word; status >> word;) {
      uint64_t count = 0;
      if (word.ends_with("voluntary_ctxt_switches:") && status >> count) sum += count;
    }
  }
  return sum;
}

/// Waits until `count` has returned the same number for one second. False after `patience`.
[[nodiscard]] inline bool restsForASecond(
    const std::function<uint64_t()>& count,
    std::chrono::milliseconds patience = std::chrono::milliseconds(20'000)) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + patience;
  uint64_t last = count();
  auto since = Clock::now();
  while (Clock::now() - since < std::chrono::seconds(1)) {
    if (Clock::now() > deadline) return false;
    ::poll(nullptr, 0, 10);
    const uint64_t now = count();
    if (now != last) since = Clock::now();
    last = now;
  }
  return true;
}

}  // namespace isopool::tests
