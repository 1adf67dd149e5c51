// SPDX-License-Identifier: BSD-3-Clause
// The start of a private supervisor, with a program that plays isopoold.
#include "client/control/supervisor_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "isopool/errors.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

std::string makeProgram(const std::filesystem::path& folder, const std::string& script) {
  std::filesystem::create_directory(folder);
  const std::string program = folder / "supervisor";
  std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return program;
}

// Why a start of this program fails.
std::string failureOf(const std::string& program, milliseconds patience) {
  try {
    client::startPrivateSupervisor(program, {}, {}, /*collectOutput=*/false, patience);
  } catch (const SupervisorLost& error) {
    return error.what();
  }
  return {};
}

TEST(SupervisorProcess, ThatDoesNotStartInTimeIsKilledReapedAndReported) {
  const std::filesystem::path folder = testFolder() / "endless_start";
  const std::string number = folder / "number";
  const std::string program = makeProgram(folder, "echo $$ >" + number + "\nexec sleep 1000");
  EXPECT_EQ(failureOf(program, milliseconds(1000)),
            "the supervisor " + program + " did not start within 1000 ms and was killed");
  pid_t process = 0;
  ASSERT_TRUE(std::ifstream(number) >> process);
  errno = 0;
  EXPECT_EQ(::waitpid(process, nullptr, WNOHANG), -1) << "it is still a child of this program";
  EXPECT_EQ(errno, ECHILD);
}

TEST(SupervisorProcess, ThatIsKilledWhileItStartsIsReportedWithItsSignal) {
  const std::string program = makeProgram(testFolder() / "killed_start", "kill -9 $$");
  EXPECT_EQ(failureOf(program, milliseconds(60'000)),
            "the supervisor " + program + " was killed by signal 9 (Killed) while it started");
}

}  // namespace
}  // namespace isopool::tests
