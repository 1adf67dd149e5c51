// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>

namespace chaos {

/// The limit for actions that take milliseconds on an idle machine.
constexpr std::chrono::milliseconds kPatience(30'000);

/// Asks every 5 ms until `condition` holds. False if it does not hold at the end of `limit`.
inline bool waitUntil(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return condition();
    ::poll(nullptr, 0, 5);
  }
  return true;
}

}  // namespace chaos
