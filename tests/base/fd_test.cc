// SPDX-License-Identifier: BSD-3-Clause
#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/system_call.h"

namespace isopool::base {
namespace {

Fd openNothing() {
  return Fd(checkSystemCall(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open", "/dev/null"));
}

bool isOpen(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(Fd, ClosesItsDescriptorOnce) {
  int number = -1;
  {
    Fd first = openNothing();
    number = first.get();
    const Fd second = std::move(first);
    EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(second.get(), number);
    first.close();
    EXPECT_TRUE(isOpen(number));
  }
  EXPECT_FALSE(isOpen(number));
}

TEST(Fd, AssignmentClosesTheFormerDescriptor) {
  Fd fd = openNothing();
  const int former = fd.get();
  Fd other = openNothing();
  const int latter = other.get();
  fd = std::move(other);
  EXPECT_FALSE(isOpen(former));
  EXPECT_EQ(fd.get(), latter);
}

TEST(Fd, ReleaseLeavesTheDescriptorOpen) {
  Fd fd = openNothing();
  const int number = fd.release();
  fd.close();
  EXPECT_TRUE(isOpen(number));
  ::close(number);
}

TEST(Fd, DuplicateOutlivesTheFirstAndIsClosedByExec) {
  Fd fd = openNothing();
  const Fd copy = fd.duplicate();
  EXPECT_NE(copy.get(), fd.get());
  fd.close();
  EXPECT_EQ(::fcntl(copy.get(), F_GETFD), FD_CLOEXEC);
}

TEST(Fd, DuplicateOfNothingThrowsTheCallAndTheReason) {
  const Fd nothing;
  try {
    const Fd copy = nothing.duplicate();
    FAIL() << "no error";
  } catch (const SystemCallError& error) {
    EXPECT_EQ(error.errorNumber(), EBADF);
    EXPECT_STREQ(error.what(), "fcntl(F_DUPFD_CLOEXEC) on -1 failed: Bad file descriptor");
  }
}

}  // namespace
}  // namespace isopool::base
