// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/memory_shortage.h"

#include <poll.h>

#include <chrono>
#include <new>

namespace isopool::supervisor {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(2);
constexpr int kPause = 2;  // ms
// Attempts of one allocation follow each other after kPause: a longer gap means a new shortage.
constexpr std::chrono::milliseconds kOfOneShortage(100);

// The new-handler: operator new calls it after each failed attempt, then tries again.
void awaitMemory() {
  thread_local Clock::time_point began;
  thread_local Clock::time_point last;
  const auto now = Clock::now();
  if (now - last > kOfOneShortage) began = now;
  last = now;
  if (now - began > kPatience) throw std::bad_alloc();
  ::poll(nullptr, 0, kPause);
}

}  // namespace

void waitForMemoryWhenThereIsNone() { std::set_new_handler(&awaitMemory); }

}  // namespace isopool::supervisor
