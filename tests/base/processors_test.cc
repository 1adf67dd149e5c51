// SPDX-License-Identifier: BSD-3-Clause
#include "base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <string>

#include "tests/base/own_root.h"

namespace isopool::base {
namespace {

/// A machine's /proc and /sys, with the thread's real processors.
class Processors : public testing::Test {
 protected:
  Processors() {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    ::sched_getaffinity(0, sizeof mine, &mine);
    all_ = CPU_COUNT(&mine);
  }

  void write(const std::string& path, const std::string& text) const { root_.write(path, text); }
  int usable() const { return usableProcessors(root_.path()); }

  OwnRoot root_;
  int all_ = 0;
};

TEST_F(Processors, AreThoseOfTheThreadWithoutControlGroups) { EXPECT_EQ(usable(), all_); }

TEST_F(Processors, AreLimitedByTheQuotaOfTheGroupRoundedUp) {
  write("/proc/self/cgroup", "0::/service\n");
  write("/sys/fs/cgroup/service/cpu.max", "max 100000\n");
  EXPECT_EQ(usable(), all_);
  write("/sys/fs/cgroup/service/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable(), 1);
  write("/sys/fs/cgroup/service/cpu.max", "150000 100000\n");
  EXPECT_EQ(usable(), std::min(2, all_));
  write("/sys/fs/cgroup/service/cpu.max", "100000000 100000\n");
  EXPECT_EQ(usable(), all_);
}

TEST_F(Processors, AreLimitedByTheQuotaOfAnAncestor) {
  write("/proc/self/cgroup", "0::/pod/service\n");
  write("/sys/fs/cgroup/pod/service/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
  EXPECT_EQ(usable(), 1);
}

// A container without a control group namespace sees its group's path on the host, and its own
// group at the mount.
TEST_F(Processors, AreLimitedInAContainerThatSeesThePathOfItsHost) {
  write("/proc/self/cgroup", "0::/docker/0123456789\n");
  write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(usable(), 1);
}

TEST_F(Processors, AreLimitedByControlGroupsOfVersion1) {
  write("/proc/self/cgroup", "4:memory:/service\n3:cpu,cpuacct:/service\n0::/\n");
  write("/sys/fs/cgroup/cpu/service/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu/service/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(usable(), all_);
  write("/sys/fs/cgroup/cpu/service/cpu.cfs_quota_us", "70000\n");
  EXPECT_EQ(usable(), 1);
}

}  // namespace
}  // namespace isopool::base
