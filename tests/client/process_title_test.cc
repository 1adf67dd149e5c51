// SPDX-License-Identifier: BSD-3-Clause
// What ps shows of the processes of a pool.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

std::string titleOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.substr(0, text.find('\0'));
}

pid_t processWith(const OwnPool& pool, const std::string& title) {
  const std::vector<pid_t> all = pool.tree().all();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](pid_t each) { return titleOf(each) == title; });
  return found == all.end() ? -1 : *found;
}

TEST(ProcessTitle, IsTheRoleOfEachProcess) {
  OwnPool pool(2);
  EXPECT_EQ(titleOf(pool.tree().zygote()), "isopool-worker: zygote");
  for (size_t slot = 0; slot < 2; ++slot) {
    const std::string title = "isopool-worker: worker " + std::to_string(slot) + " of pool 1";
    EXPECT_TRUE(waitUntil([&] { return titleOf(pool.processOf(slot)) == title; }))
        << titleOf(pool.processOf(slot));
  }
  EXPECT_TRUE(waitUntil([&] { return processWith(pool, "isopool-worker: spare") > 0; }));
}

TEST(ProcessTitle, OfASpareChangesWhenItTakesASlot) {
  OwnPool pool(1);
  pid_t spare = -1;
  ASSERT_TRUE(waitUntil([&] { return (spare = processWith(pool, "isopool-worker: spare")) > 0; }));
  ASSERT_EQ(::kill(pool.processOf(0), SIGKILL), 0);
  EXPECT_TRUE(waitUntil([&] { return titleOf(spare) == "isopool-worker: worker 0 of pool 1"; }))
      << titleOf(spare);
  // The program hears of the replacement after the replacement has its title.
  EXPECT_TRUE(waitUntil([&] { return pool.processOf(0) == spare; }));
}

TEST(ProcessTitle, LeavesTheEnvironmentReadable) {
  OwnPool pool(1, {"ISOPOOL_TEST_TITLE=kept"});
  std::ifstream file("/proc/" + std::to_string(pool.processOf(0)) + "/environ", std::ios::binary);
  const std::string environment{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(environment.find("ISOPOOL_TEST_TITLE=kept"), std::string::npos);
}

}  // namespace
}  // namespace isopool::tests
