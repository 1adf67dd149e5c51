// SPDX-License-Identifier: BSD-3-Clause
// Commits the fault that the sanitizer named as its argument has to report.

#include <climits>
#include <memory>
#include <string_view>
#include <thread>

int main(int argc, char** argv) {
  const std::string_view sanitizer = argc > 1 ? argv[1] : "";
  if (sanitizer == "address") {
    auto value = std::make_unique<volatile int>(1);
    volatile int* const stale = value.get();
    value.reset();
    return *stale;
  }
  if (sanitizer == "thread") {
    int shared = 0;
    std::thread other([&shared] { ++shared; });
    ++shared;
    other.join();
    return shared;
  }
  volatile int most = INT_MAX;
  return most + argc;
}
