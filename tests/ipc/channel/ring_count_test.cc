// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>

#include "ipc/channel/ring.h"
#include "ipc/channel/shared_memory.h"

namespace isopool::ipc {
namespace {

/// A ring in this process, with counts that begin shortly before they wrap.
class RingCount : public testing::Test {
 protected:
  static constexpr size_t kSlots = 4;
  static constexpr uint32_t kFirst = UINT32_MAX - 5;
  static constexpr uint64_t kItems = 20;

  void publish(uint64_t item) {
    writer_.publish([item](uint64_t& slot) { slot = item; });
  }
  Received peek(uint64_t& item) {
    return reader_.peek([&](const uint64_t& slot) {
      item = slot;
      return true;
    });
  }

  std::array<uint64_t, kSlots> slots_{};
  SharedWord<uint32_t> tail_{kFirst};
  SharedWord<uint32_t> head_{kFirst};
  SharedWord<uint32_t> sleeping_{0};
  RingWriter<SharedMemory, uint64_t, kSlots> writer_{slots_, tail_, head_, sleeping_, {}, kFirst};
  RingReader<SharedMemory, uint64_t, kSlots> reader_{std::span<const uint64_t, kSlots>(slots_),
                                                     tail_,
                                                     head_,
                                                     sleeping_,
                                                     CrashPoint::kNone,
                                                     kFirst};
};

TEST_F(RingCount, AFullRingStaysInOrderAcrossTheWrap) {
  uint64_t published = 0;
  for (uint64_t consumed = 0; consumed < kItems; ++consumed) {
    while (writer_.hasRoom()) publish(published++);
    EXPECT_EQ(published - consumed, kSlots);
    uint64_t item = ~uint64_t{0};
    ASSERT_EQ(peek(item), Received::kOne);
    EXPECT_EQ(item, consumed);
    reader_.consume();
  }
  EXPECT_LT(reader_.consumed(), kFirst);
}

TEST_F(RingCount, AnEmptyRingIsEmptyAcrossTheWrap) {
  for (uint64_t number = 0; number < kItems; ++number) {
    EXPECT_FALSE(reader_.ready());
    publish(number);
    EXPECT_TRUE(reader_.ready());
    reader_.consume();
  }
}

TEST_F(RingCount, ATailTooFarAheadIsPoisonAcrossTheWrap) {
  uint64_t item = 0;
  tail_.store(kFirst + kSlots);
  EXPECT_EQ(peek(item), Received::kOne);
  tail_.store(kFirst + kSlots + 1);
  EXPECT_EQ(peek(item), Received::kPoisoned);
  tail_.store(3);  // wrapped, and nine ahead
  EXPECT_EQ(peek(item), Received::kPoisoned);
  tail_.store(kFirst - 1);  // behind the reader
  EXPECT_EQ(peek(item), Received::kPoisoned);
}

}  // namespace
}  // namespace isopool::ipc
