// SPDX-License-Identifier: BSD-3-Clause
#include "base/memory_limits.h"

#include <gtest/gtest.h>

#include "base/settings/setting_default.h"
#include "tests/base/own_root.h"

namespace isopool::base {
namespace {

constexpr uint64_t kGibibyte = uint64_t{1} << 30;

class UsableMemory : public testing::Test {
 protected:
  UsableMemory() {
    root_.write("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:        1024 kB\n");
  }
  uint64_t usable() const { return usableMemory(root_.path()); }

  OwnRoot root_;
};

TEST_F(UsableMemory, IsTheMachinesWithoutControlGroups) { EXPECT_EQ(usable(), 16 * kGibibyte); }

TEST_F(UsableMemory, IsLimitedByTheGroup) {
  root_.write("/proc/self/cgroup", "0::/service\n");
  root_.write("/sys/fs/cgroup/service/memory.max", "max\n");
  EXPECT_EQ(usable(), 16 * kGibibyte);
  root_.write("/sys/fs/cgroup/service/memory.max", "2147483648\n");
  EXPECT_EQ(usable(), 2 * kGibibyte);
}

TEST_F(UsableMemory, IsLimitedByAnAncestor) {
  root_.write("/proc/self/cgroup", "0::/pod/service\n");
  root_.write("/sys/fs/cgroup/pod/service/memory.max", "4294967296\n");
  root_.write("/sys/fs/cgroup/pod/memory.max", "1073741824\n");
  EXPECT_EQ(usable(), kGibibyte);
}

TEST_F(UsableMemory, IsLimitedInAContainerThatSeesThePathOfItsHost) {
  root_.write("/proc/self/cgroup", "0::/docker/0123456789\n");
  root_.write("/sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_EQ(usable(), kGibibyte);
}

TEST_F(UsableMemory, IsLimitedByControlGroupsOfVersion1) {
  root_.write("/proc/self/cgroup", "4:memory:/service\n3:cpu,cpuacct:/service\n0::/\n");
  root_.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(usable(), 16 * kGibibyte);
  root_.write("/sys/fs/cgroup/memory/service/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(usable(), kGibibyte);
}

TEST_F(UsableMemory, IsWithoutLimitIfNothingStatesOne) {
  const OwnRoot empty;
  EXPECT_EQ(usableMemory(empty.path()), UINT64_MAX);
}

TEST(MemoryUse, IsThatOfTheGroupNearestToItsLimitWithoutInactivePagesOfFiles) {
  const OwnRoot root;
  EXPECT_FALSE(memoryUse(root.path()).has_value());
  root.write("/proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    4194304 kB\n");
  EXPECT_EQ(memoryUse(root.path())->used, 12 * kGibibyte) << "the machine's";
  EXPECT_EQ(memoryUse(root.path())->limit, 16 * kGibibyte);
  root.write("/proc/self/cgroup", "0::/pod/service\n");
  root.write("/sys/fs/cgroup/pod/service/memory.max", "3000\n");
  root.write("/sys/fs/cgroup/pod/service/memory.current", "2500\n");
  root.write("/sys/fs/cgroup/pod/service/memory.stat", "anon 1900\ninactive_file 600\n");
  EXPECT_EQ(memoryUse(root.path())->used, 1900u);
  EXPECT_EQ(memoryUse(root.path())->limit, 3000u);
  root.write("/sys/fs/cgroup/pod/memory.max", "4000\n");
  root.write("/sys/fs/cgroup/pod/memory.current", "3900\n");
  EXPECT_EQ(memoryUse(root.path())->used, 3900u) << "the ancestor's";
  root.write("/sys/fs/cgroup/pod/memory.max", "max\n");
  EXPECT_EQ(memoryUse(root.path())->limit, 3000u);
}

TEST(MemoryUse, IsThatOfAGroupOfVersion1) {
  const OwnRoot root;
  root.write("/proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    4194304 kB\n");
  root.write("/proc/self/cgroup", "4:memory:/service\n0::/\n");
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  root.write("/sys/fs/cgroup/memory/service/memory.limit_in_bytes", "3000\n");
  root.write("/sys/fs/cgroup/memory/service/memory.usage_in_bytes", "2500\n");
  root.write("/sys/fs/cgroup/memory/service/memory.stat", "total_inactive_file 600\n");
  EXPECT_EQ(memoryUse(root.path())->used, 1900u);
  EXPECT_EQ(memoryUse(root.path())->limit, 3000u);
}

TEST(MemoryKills, AreThoseOfTheGroup) {
  const OwnRoot root;
  root.write("/proc/self/cgroup", "0::/service\n");
  root.write("/proc/vmstat", "nr_free_pages 17\noom_kill 9\n");
  EXPECT_EQ(memoryKills(root.path()), 9u) << "the machine's, if there is no group";
  root.write("/sys/fs/cgroup/service/memory.events",
             "low 0\nhigh 0\nmax 40\noom 3\noom_kill 2\noom_group_kill 1\n");
  root.write("/sys/fs/cgroup/memory.events", "oom 5\noom_kill 5\n");
  EXPECT_EQ(memoryKills(root.path()), 2u);
}

TEST(MemoryKills, AreThoseOfAGroupOfVersion1) {
  const OwnRoot root;
  root.write("/proc/self/cgroup", "4:memory:/service\n0::/\n");
  root.write("/sys/fs/cgroup/memory/service/memory.oom_control",
             "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
  EXPECT_EQ(memoryKills(root.path()), 7u);
}

TEST(MemoryKills, AreUnknownIfTheKernelDoesNotShowThem) {
  const OwnRoot root;
  EXPECT_EQ(memoryKills(root.path()), std::nullopt);
}

TEST(MemoryKills, EndTheWholeGroupOnlyIfItIsSetSo) {
  const OwnRoot root;
  root.write("/proc/self/cgroup", "0::/\n");
  EXPECT_FALSE(memoryKillsWholeGroup(root.path()));
  root.write("/sys/fs/cgroup/memory.oom.group", "0\n");
  EXPECT_FALSE(memoryKillsWholeGroup(root.path()));
  root.write("/sys/fs/cgroup/memory.oom.group", "1\n");
  EXPECT_TRUE(memoryKillsWholeGroup(root.path()));
}

TEST(DefaultOfAnArenasLimit, IsAPartOfTheMemoryIfThatIsLess) {
  const Setting& output = *findSetting("output_arena_limit");
  EXPECT_EQ(defaultOf(output, UINT64_MAX).number, 4 * kGibibyte);
  EXPECT_EQ(defaultOf(output, 16 * kGibibyte).number, 4 * kGibibyte);
  EXPECT_EQ(defaultOf(output, 2 * kGibibyte + 4096).number, kGibibyte / 2);
  EXPECT_GE(defaultOf(output, 0).number, output.least);
}

}  // namespace
}  // namespace isopool::base
