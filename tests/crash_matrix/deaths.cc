// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash_matrix/deaths.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <string>

#include "tests/ipc/channel/peers.h"

namespace isopool::tests {

namespace {

using ipc::CrashPoint;

constexpr size_t kPoints = static_cast<size_t>(CrashPoint::kCount);
constexpr size_t kOperations = static_cast<size_t>(Operation::kCount);

constexpr std::array<std::string_view, kOperations> kNames{
    "start",        "open",         "load",   "inline call", "copied call", "shared call",
    "kept call",    "large result", "trim",   "long words",  "session",     "recall",
    "worker death", "package",      "relief", "leave",       "drain"};

using Counts = std::array<std::array<std::atomic<uint32_t>, kOperations>, kPoints>;

/// Counts the deaths that all processes of this run record; prints them at the end.
class Book : public ::testing::Environment {
 public:
  void TearDown() override {
    uint32_t deaths = 0;
    uint32_t pairs = 0;
    size_t reached = 0;
    std::string missing;
    for (size_t point = 1; point < kPoints; ++point) {
      uint32_t here = 0;
      for (const auto& count : (*counts_)[point]) {
        here += count;
        pairs += count > 0 ? 1 : 0;
      }
      deaths += here;
      reached += here > 0 ? 1 : 0;
      if (here == 0) missing += " " + std::string(crashPointName(static_cast<CrashPoint>(point)));
    }
    std::printf("crash-point matrix: %zu of %zu ids, %u deaths, %u pairs of id and operation\n",
                reached, kPoints - 1, deaths, pairs);
    // A part of the matrix reaches only a part of the points.
    if (GTEST_FLAG_GET(filter) == "*")
      EXPECT_EQ(missing, "") << "no process died at these points";
    else if (!missing.empty())
      std::printf("not reached:%s\n", missing.c_str());
  }

  void note(CrashPoint point, Operation operation) {
    ++(*counts_)[static_cast<size_t>(point)][static_cast<size_t>(operation)];
  }

 private:
  SharedWithChildren<Counts> counts_;
};

Book* const book = static_cast<Book*>(::testing::AddGlobalTestEnvironment(new Book));

}  // namespace

std::string_view operationName(Operation operation) {
  return kNames.at(static_cast<size_t>(operation));
}

void noteDeath(CrashPoint point, Operation operation) { book->note(point, operation); }

}  // namespace isopool::tests
