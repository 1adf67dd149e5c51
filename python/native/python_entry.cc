// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/python_entry.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "python/native/unlocked.h"

namespace isopool::python {

namespace {

// For the user's callbacks, which should be short.
constexpr std::chrono::seconds kPatience(10);
constexpr std::chrono::milliseconds kBetweenLooks(1);

// Without a lock, which a fork could copy in its locked state.
std::atomic<int> inside{0};
std::atomic<bool> closed{false};
thread_local int insideOfThisThread = 0;

void enter(int change) {
  insideOfThisThread += change;
  inside += change;
}

// A forked child has no thread but this one.
[[maybe_unused]] const int registered =
    ::pthread_atfork(nullptr, nullptr, [] { inside = insideOfThisThread; });

}  // namespace

PythonEntry::PythonEntry() {
  // In this order: close() either sees this thread or is seen by it.
  enter(1);
  if (closed || isEnding()) {
    enter(-1);
  } else {
    acquired_.emplace();
  }
}

PythonEntry::~PythonEntry() {
  if (!acquired_) return;
  acquired_.reset();
  enter(-1);
}

void PythonEntry::close() {
  closed = true;
  unlocked([] {
    const auto giveUp = std::chrono::steady_clock::now() + kPatience;
    // Code that exits the program from within a callback does not wait for itself.
    while (inside > insideOfThisThread && std::chrono::steady_clock::now() < giveUp) {
      std::this_thread::sleep_for(kBetweenLooks);
    }
  });
}

}  // namespace isopool::python
