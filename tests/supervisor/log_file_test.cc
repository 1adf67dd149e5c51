// SPDX-License-Identifier: BSD-3-Clause
// The file that a supervisor appends its log to.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "testing/temporary_folder.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

TEST(LogFile, HasTheLogAndIsMadeAgainByAReload) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/isopoold.log";
  const auto has = [](const std::string& file, const std::string& text) {
    std::ifstream stream(file);
    const std::string all((std::istreambuf_iterator<char>(stream)), {});
    return all.find(text) != std::string::npos;
  };
  {
    SharedSupervisor supervisor({"--workers", "1", "--log-level", "info", "--log-file", path});
    const auto client = supervisor.attachWithPool(1, "first");
    EXPECT_TRUE(client->waitFor([&] { return has(path, "(first, pid "); }));
    EXPECT_EQ(supervisor.log(), "");
    ASSERT_EQ(::rename(path.c_str(), (path + ".1").c_str()), 0);
    supervisor.signal(SIGHUP);
    EXPECT_TRUE(client->waitFor([&] { return has(path, "the settings were reloaded"); }));
    const auto next = supervisor.attachWithPool(1, "second");
    EXPECT_TRUE(next->waitFor([&] { return has(path, "(second, pid "); }));
    EXPECT_FALSE(has(path + ".1", "(second, pid "));
  }
}

}  // namespace
}  // namespace isopool::tests
