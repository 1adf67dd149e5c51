// SPDX-License-Identifier: BSD-3-Clause
// Starts of a supervisor that the system forbids: the error has the reason.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// The text of the error. The supervisor's environment is unique, so that no other one is used.
std::string failureOfStart() {
  const ProcessMark mark;
  const ScopedVariable unique(mark.variable());
  PoolOptions options;
  options.workers = 1;
  options.logger = [](LogLevel, std::string_view) {};
  std::string text = "it has started";
  try {
    const InterpreterManager manager(options);
  } catch (const std::exception& error) {
    text = error.what();
  }
  EXPECT_TRUE(mark.waitUntilNoneIsLeft(kPatience));
  return text;
}

TEST(StartFailure, BecauseOfTheLimitOfFileSizesSaysSo) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{2048, before.rlim_max};  // ulimit -f 4
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const std::string text = failureOfStart();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(text.find(std::strerror(EFBIG)), std::string::npos) << text;
}

TEST(StartFailure, AfterANewPidNamespaceSaysSo) {
  std::string text;
  bool unshared = false;
  std::thread([&] {
    unshared = ::unshare(CLONE_NEWPID) == 0;
    if (unshared) text = failureOfStart();
  }).join();
  if (!unshared) GTEST_SKIP() << "this process may not make a PID namespace";
  EXPECT_NE(text.find("unshare(CLONE_NEWPID)"), std::string::npos) << text;
}

}  // namespace
}  // namespace isopool::tests
