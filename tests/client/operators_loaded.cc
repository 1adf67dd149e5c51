// SPDX-License-Identifier: BSD-3-Clause
// The variants of the library of operators, see CMakeLists.txt. Without torch, whose headers take a
// quarter of a minute.
#include "tests/client/operators_loaded.h"

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

void operatorsLoaded() {
#ifdef OPERATORS_THROW
  throw std::runtime_error("these operators do not want to exist");
#endif
#ifdef OPERATORS_CRASH
  std::abort();
#endif
#ifdef OPERATORS_START_A_THREAD
  std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
#endif
}
