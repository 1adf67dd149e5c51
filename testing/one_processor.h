// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/types.h>

#include <vector>

namespace isopool::tests {

/// The processors that this thread may use.
inline std::vector<int> usableProcessors() {
  cpu_set_t usable;
  EXPECT_EQ(::sched_getaffinity(0, sizeof usable, &usable), 0);
  std::vector<int> found;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<size_t>(i), &usable)) found.push_back(i);
  }
  return found;
}

/// Restricts a process's main thread (0: this thread) to one processor.
inline void confineTo(int processor, pid_t process = 0) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(processor), &one);
  EXPECT_EQ(::sched_setaffinity(process, sizeof one, &one), 0);
}

/// Keeps the calling thread on one processor while this object exists.
class OnOneProcessor {
 public:
  explicit OnOneProcessor(int processor) {
    EXPECT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    confineTo(processor);
  }
  ~OnOneProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OnOneProcessor(const OnOneProcessor&) = delete;
  OnOneProcessor& operator=(const OnOneProcessor&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace isopool::tests
