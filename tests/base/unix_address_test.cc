// SPDX-License-Identifier: BSD-3-Clause
#include "base/unix_address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/fd.h"

namespace isopool::base {
namespace {

bool binds(const UnixAddress& address) {
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::bind(socket.get(), address.get(), address.bytes()) == 0;
}

TEST(UnixAddress, TakesPathsUpToTheLongestThatTheKernelTakes) {
  const std::string folder = testing::TempDir();
  const std::string longest = folder + std::string(UnixAddress::kMostBytes - folder.size(), 'x');
  const auto address = UnixAddress::ofPath(longest);
  ASSERT_TRUE(address.has_value());
  ::unlink(longest.c_str());
  EXPECT_TRUE(binds(*address));
  EXPECT_EQ(::access(longest.c_str(), F_OK), 0) << "bound elsewhere";
  ::unlink(longest.c_str());
  EXPECT_FALSE(UnixAddress::ofPath(longest + "x").has_value());
}

TEST(UnixAddress, RefusesWhatIsNoPath) {
  EXPECT_FALSE(UnixAddress::ofPath("").has_value());
  EXPECT_FALSE(UnixAddress::ofPath(std::string_view("/tmp/a\0b", 8)).has_value());
  EXPECT_FALSE(UnixAddress::ofPathOrAbstractName("@").has_value());
}

TEST(UnixAddress, OfAnAbstractNameLeavesNoFileAndIsItsOwnLengthLong) {
  const std::string name = "@isopool-unix-address-test-" + std::to_string(::getpid());
  const Fd first(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = UnixAddress::ofPathOrAbstractName(name).value();
  EXPECT_EQ(::bind(first.get(), address.get(), address.bytes()), 0);
  EXPECT_NE(::access(name.c_str(), F_OK), 0);
  EXPECT_FALSE(binds(address)) << "the same name twice";
  EXPECT_TRUE(binds(UnixAddress::ofPathOrAbstractName(name + "x").value()));
}

TEST(UnixAddress, OfAnotherFileIsToldFromOneWithoutAListener) {
  const std::string socket = "/tmp/isopool-unix-address-test-" + std::to_string(::getpid());
  const std::string file = socket + "-file";
  EXPECT_TRUE(binds(UnixAddress::ofPath(socket).value()));
  std::ofstream(file).put('x');
  EXPECT_EQ(otherFileAt(socket), "");
  EXPECT_EQ(otherFileAt(file), "a regular file");
  EXPECT_EQ(otherFileAt("/tmp"), "a folder");
  EXPECT_EQ(otherFileAt("/dev/null"), "another kind of file");
  EXPECT_EQ(otherFileAt(file + "-missing"), "");
  ::unlink(socket.c_str());
  ::unlink(file.c_str());
}

}  // namespace
}  // namespace isopool::base
