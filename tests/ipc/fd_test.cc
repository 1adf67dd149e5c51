// SPDX-License-Identifier: BSD-3-Clause
#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/system_call.h"

namespace isopool::ipc {
namespace {

base::Fd openNothing() {
  return base::Fd(
      base::checkSystemCall(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open", "/dev/null"));
}

bool isOpen(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(base::Fd, ClosesItsDescriptorOnce) {
  int number = -1;
  {
    base::Fd first = openNothing();
    number = first.get();
    const base::Fd second = std::move(first);
    EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(second.get(), number);
    first.close();
    EXPECT_TRUE(isOpen(number));
  }
  EXPECT_FALSE(isOpen(number));
}

TEST(base::Fd, AssignmentClosesTheFormerDescriptor) {
  base::Fd fd = openNothing();
  const int former = fd.get();
  base::Fd other = openNothing();
  const int latter = other.get();
  fd = std::move(other);
  EXPECT_FALSE(isOpen(former));
  EXPECT_EQ(fd.get(), latter);
}

TEST(base::Fd, ReleaseLeavesTheDescriptorOpen) {
  base::Fd fd = openNothing();
  const int number = fd.release();
  fd.close();
  EXPECT_TRUE(isOpen(number));
  ::close(number);
}

TEST(base::Fd, DuplicateOutlivesTheFirstAndIsClosedByExec) {
  base::Fd fd = openNothing();
  const base::Fd copy = fd.duplicate();
  EXPECT_NE(copy.get(), fd.get());
  fd.close();
  EXPECT_EQ(::fcntl(copy.get(), F_GETFD), FD_CLOEXEC);
}

TEST(base::Fd, DuplicateOfNothingThrowsTheCallAndTheReason) {
  const base::Fd nothing;
  try {
    const base::Fd copy = nothing.duplicate();
    FAIL() << "no error";
  } catch (const base::SystemCallError& error) {
    EXPECT_EQ(error.errorNumber(), EBADF);
    EXPECT_STREQ(error.what(), "fcntl(F_DUPFD_CLOEXEC) on -1 failed: Bad file descriptor");
  }
}

}  // namespace
}  // namespace isopool::ipc
