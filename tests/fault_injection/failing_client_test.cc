// SPDX-License-Identifier: BSD-3-Clause
// libisopool's start, a package, a call and the end, with real workers and each of its calls
// failing in turn.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "tests/client/harness.h"
#include "tests/fault_injection/documented_error.h"
#include "tests/fault_injection/failing_calls.h"
#include "tests/fault_injection/held.h"

namespace isopool::tests {
namespace {

constexpr uint32_t kNoKind = ~0u;
// Each start of a real supervisor takes a second.
constexpr uint64_t kMostPerKind = 3;
constexpr std::chrono::seconds kHang(20);

std::string useAPool() {
  return documentedErrorOf([] {
    InterpreterManager manager(1);
    const Subject subject(manager);
    // Large enough for the arena.
    const at::Tensor input = at::ones({100'000});
    EXPECT_TRUE(subject.tensor("clone", {input}).equal(input));
  });
}

class EachCallOfTheClient : public testing::TestWithParam<uint32_t> {};

TEST_P(EachCallOfTheClient, ThatFailsEndsInADocumentedErrorOrInAnAnswer) {
  // What the process creates once and keeps (the input arena, memory of threads) is not a leak.
  static const std::string first = useAPool();
  ASSERT_EQ(first, "");
  uint64_t failed = 0;
  uint64_t survived = 0;
  for (uint64_t n = 1; n <= kMostPerKind; ++n) {
    const ProcessMark mark;
    const ScopedVariable own(mark.variable());
    const Held before = heldNow();
    const auto began = std::chrono::steady_clock::now();
    isopoolFailNthCall(GetParam(), n);
    const std::string error = useAPool();
    const bool happened = isopoolCallsCounted() >= n;
    isopoolFailNthCall(kNoKind, 0);
    const std::string which = std::string(kCallKindNames[GetParam()]) + " " + std::to_string(n) +
                              " failed: " + (error.empty() ? "no error" : error);
    EXPECT_LT(std::chrono::steady_clock::now() - began, kHang) << which;
    EXPECT_TRUE(mark.waitUntilNoneIsLeft(milliseconds(5000))) << which;
    EXPECT_EQ(heldNow(), before) << which;
    if (!happened) {
      EXPECT_EQ(error, "");
      break;
    }
    ++failed;
    if (error.empty()) ++survived;
  }
  std::printf("%s: %llu failed, of which %llu were survived\n",
              std::string(kCallKindNames[GetParam()]).c_str(),
              static_cast<unsigned long long>(failed), static_cast<unsigned long long>(survived));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachCallOfTheClient,
                         testing::Values(static_cast<uint32_t>(CallKind::kMmap),
                                         static_cast<uint32_t>(CallKind::kMemfdCreate),
                                         static_cast<uint32_t>(CallKind::kFallocate),
                                         static_cast<uint32_t>(CallKind::kFork),
                                         static_cast<uint32_t>(CallKind::kSocketpair),
                                         static_cast<uint32_t>(CallKind::kSendmsg),
                                         static_cast<uint32_t>(CallKind::kRecvmsg),
                                         static_cast<uint32_t>(CallKind::kPipe),
                                         static_cast<uint32_t>(CallKind::kEventfd),
                                         static_cast<uint32_t>(CallKind::kDuplicate),
                                         static_cast<uint32_t>(CallKind::kPidfdOpen)),
                         [](const auto& test) { return std::string(kCallKindNames[test.param]); });

}  // namespace
}  // namespace isopool::tests
