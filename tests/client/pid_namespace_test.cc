// SPDX-License-Identifier: BSD-3-Clause
// A program in a container that has access to the socket of the host's supervisor.
#include <unistd.h>

#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

constexpr const char* kUnshare = "/usr/bin/unshare";

/// A command line that runs a program as the first process of a PID namespace with its own /proc.
std::vector<std::string> inOwnPidNamespace(std::vector<std::string> words) {
  std::vector<std::string> all{kUnshare, "--pid", "--fork", "--kill-child", "--mount-proc"};
  if (::geteuid() != 0) all.insert(all.end(), {"--user", "--map-root-user"});
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

class SharedFromAPidNamespace : public AttachedManagers {};

TEST_F(SharedFromAPidNamespace, ADeadWorkerIsNotTakenForADeadSupervisor) {
  if (::access(kUnshare, X_OK) != 0) GTEST_SKIP() << "there is no " << kUnshare;
  Program probe(inOwnPidNamespace({"/bin/true"}));
  if (probe.waitForEnd() != 0) GTEST_SKIP() << "a PID namespace and its /proc need a privilege";
  serve({});
  Program program(inOwnPidNamespace({PROGRAM, "lose_a_worker", packagePath()}),
                  {"ISOPOOL_SOCKET=" + supervisor().address()});
  EXPECT_EQ(program.readLine(), "WorkerLost");
  EXPECT_EQ(program.readLine(), "ready");
  program.closeInput();
  EXPECT_EQ(program.waitForEnd(), 0);
}

}  // namespace
}  // namespace isopool::tests
