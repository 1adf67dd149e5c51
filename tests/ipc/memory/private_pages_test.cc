// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/private_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "ipc/memory/memory_object.h"

namespace isopool::ipc {
namespace {

constexpr size_t kBytes = 8 * kPageBytes;

class PrivatePagesOfARange : public ::testing::Test {
 protected:
  Mapping map() { return mapShared(object, 0, kBytes, Access::kReadWrite, Prefault::kYes); }
  char* at(const Mapping& mapping, size_t page) {
    return reinterpret_cast<char*>(mapping.data()) + page * kPageBytes;
  }
  // Like the owner of a range that releases it.
  void restore(std::byte* address, size_t count) {
    mapSharedAt(address, object, static_cast<size_t>(address - ours.data()), count * kPageBytes,
                Access::kReadWrite, Prefault::kNo);
  }

  const base::Fd object = createMemoryObject("test", kBytes);
  const Mapping ours = map();
  const Mapping theirs = map();
  PrivatePages pages{4 * kPageBytes};
};

TEST_F(PrivatePagesOfARange, AreUsedAgainForTheNextOneOfTheSameLength) {
  std::strcpy(at(theirs, 0), "first");
  ASSERT_TRUE(pages.privatise(ours.data(), 2 * kPageBytes));
  std::strcpy(at(ours, 1), "left over");
  pages.recover(ours.data(), 2 * kPageBytes);
  restore(ours.data(), 2);
  EXPECT_EQ(pages.heldBytes(), 2 * kPageBytes);
  EXPECT_STREQ(at(ours, 0), "first");
  EXPECT_STREQ(at(ours, 1), "");

  std::strcpy(at(theirs, 4), "second");
  ASSERT_TRUE(pages.privatise(ours.data() + 4 * kPageBytes, 2 * kPageBytes));
  EXPECT_EQ(pages.heldBytes(), 0u);
  std::strcpy(at(theirs, 4), "changed");
  EXPECT_STREQ(at(ours, 4), "second");
  EXPECT_STREQ(at(ours, 5), "");
  std::strcpy(at(ours, 5), "ours");
  EXPECT_STREQ(at(theirs, 5), "");
}

TEST_F(PrivatePagesOfARange, AreNotThoseOfARangeOfAnotherLength) {
  ASSERT_TRUE(pages.privatise(ours.data(), 2 * kPageBytes));
  pages.recover(ours.data(), 2 * kPageBytes);
  ASSERT_TRUE(pages.privatise(ours.data() + 4 * kPageBytes, kPageBytes));
  EXPECT_EQ(pages.heldBytes(), 2 * kPageBytes);
}

TEST_F(PrivatePagesOfARange, AreHeldUpToALimitTheOldestGoFirst) {
  for (const size_t page : {0, 1, 2, 3, 4, 5}) {
    ASSERT_TRUE(privatisePages(ours.data() + page * kPageBytes, kPageBytes));
    pages.recover(ours.data() + page * kPageBytes, kPageBytes);
    EXPECT_EQ(pages.heldBytes(), std::min<size_t>(page + 1, 4) * kPageBytes);
  }
  // Three more pages displace three of the four; five pages exceed the limit and are not held.
  ASSERT_TRUE(privatisePages(ours.data(), 3 * kPageBytes));
  pages.recover(ours.data(), 3 * kPageBytes);
  EXPECT_EQ(pages.heldBytes(), 4 * kPageBytes);
  ASSERT_TRUE(privatisePages(ours.data(), 5 * kPageBytes));
  pages.recover(ours.data(), 5 * kPageBytes);
  EXPECT_EQ(pages.heldBytes(), 4 * kPageBytes);
}

TEST_F(PrivatePagesOfARange, LeaveTheRangeMapped) {
  ASSERT_TRUE(pages.privatise(ours.data(), 2 * kPageBytes));
  pages.recover(ours.data(), 2 * kPageBytes);
  ASSERT_EQ(pages.heldBytes(), 2 * kPageBytes);
  // msync() fails with ENOMEM if the range has a hole.
  EXPECT_EQ(::msync(ours.data(), kBytes, MS_ASYNC), 0);
}

}  // namespace
}  // namespace isopool::ipc
