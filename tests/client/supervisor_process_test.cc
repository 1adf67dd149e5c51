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

TEST(SupervisorProcess, ThatDoesNotStartInTimeIsKilledReapedAndReported) {
  const std::filesystem::path folder = testFolder() / "endless_start";
  std::filesystem::create_directory(folder);
  const std::string program = folder / "supervisor";
  const std::string number = folder / "number";
  std::ofstream(program) << "#!/bin/sh\necho $$ >" << number << "\nexec sleep 1000\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  std::string text;
  try {
    client::startPrivateSupervisor(program, {}, {}, /*collectOutput=*/false, milliseconds(1000));
  } catch (const SupervisorLost& error) {
    text = error.what();
  }
  EXPECT_EQ(text, "the supervisor " + program + " did not start within 1000 ms and was killed");
  pid_t process = 0;
  ASSERT_TRUE(std::ifstream(number) >> process);
  errno = 0;
  EXPECT_EQ(::waitpid(process, nullptr, WNOHANG), -1) << "it is still a child of this program";
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace isopool::tests
