// SPDX-License-Identifier: BSD-3-Clause
// A program that inherits orphans: the first process of a container without an init, or a
// subreaper.
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

TEST(Reaping, AManagerLeavesNoZombieInAProgramThatInheritsOrphans) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  for (int i = 0; i < 2; ++i) {
    InterpreterManager manager(1);
    EXPECT_EQ(manager.allInstances().size(), 1u);
  }
  siginfo_t dead{};
  const int result = ::waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT);
  EXPECT_TRUE(result == -1 || dead.si_pid == 0) << "process " << dead.si_pid << " is not reaped";
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

}  // namespace
}  // namespace isopool::tests
