// SPDX-License-Identifier: BSD-3-Clause
#include "base/regular_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <utility>

#include "base/fd.h"
#include "testing/temporary_folder.h"

namespace isopool::base {
namespace {

class RegularFile : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return folder_.path() + "/" + name; }
  /// Why the file can't be read; empty if it can.
  static std::string refusal(const std::string& path) {
    try {
      readRegularFile(path, [](const char*, size_t) {});
      return "";
    } catch (const FileError& error) {
      return error.what();
    }
  }

  tests::TemporaryFolder folder_;
};

TEST_F(RegularFile, IsReadWhole) {
  const std::string content(10'000'000, 'x');
  std::ofstream(path("file")) << content;
  EXPECT_EQ(contentOfRegularFile(path("file"), content.size()), content);
  std::ofstream(path("empty")).flush();
  EXPECT_EQ(contentOfRegularFile(path("empty"), 10), "");
}

TEST_F(RegularFile, IsRefusedIfItIsTooLong) {
  std::ofstream(path("file")) << "12345";
  EXPECT_EQ(contentOfRegularFile(path("file"), 5), "12345");
  EXPECT_THROW(contentOfRegularFile(path("file"), 4), FileError);
}

// Each of these waits, or has no end, if it is opened and read like a file.
TEST_F(RegularFile, IsNoFifoDeviceFolderOrSocket) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_NE(refusal(path("fifo")).find("a FIFO and not a regular file"), std::string::npos);
  EXPECT_NE(refusal("/dev/zero").find("a device"), std::string::npos);
  EXPECT_NE(refusal("/dev/null").find("a device"), std::string::npos);
  EXPECT_NE(refusal(folder_.path()).find("a directory"), std::string::npos);
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path("socket").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_NE(refusal(path("socket")).find("a socket"), std::string::npos);
}

TEST_F(RegularFile, IsReadThroughALink) {
  std::ofstream(path("file")) << "content";
  ASSERT_EQ(::symlink(path("file").c_str(), path("link").c_str()), 0);
  EXPECT_EQ(contentOfRegularFile(path("link"), 100), "content");
}

TEST_F(RegularFile, ThatIsAbsentGivesTheSystemsReason) {
  EXPECT_EQ(refusal(path("absent")), "No such file or directory");
}

TEST_F(RegularFile, OfMoreBytesThanTheMachineHasIsRefusedAtOnce) {
  std::ofstream(path("sparse")).flush();
  ASSERT_EQ(::truncate(path("sparse").c_str(), off_t{1} << 42), 0);
  EXPECT_NE(refusal(path("sparse")).find("more than this machine's memory"), std::string::npos);
}

// As a log that is written faster than it is read.
TEST_F(RegularFile, ThatGrowsOrShrinksOrChangesMeanwhileIsRefused) {
  const std::string file = path("file");
  const auto refusalIf = [&](const std::function<void()>& change) {
    std::ofstream(file) << std::string(9'000'000, 'x');
    bool changed = false;
    try {
      readRegularFile(file, [&](const char*, size_t) {
        if (!std::exchange(changed, true)) change();
      });
    } catch (const FileError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusalIf([&] { std::ofstream(file, std::ios::app) << "more"; }).find("was changed"),
            std::string::npos);
  EXPECT_NE(refusalIf([&] { EXPECT_EQ(::truncate(file.c_str(), 5'000'000), 0); }).find("shorter"),
            std::string::npos);
  EXPECT_EQ(refusalIf([] {}), "");
}

}  // namespace
}  // namespace isopool::base
