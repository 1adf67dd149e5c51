// SPDX-License-Identifier: BSD-3-Clause
// The sandbox as a program and its operator see it. tests/worker/sandbox_test.cc tests every
// forbidden operation.
#include <sys/resource.h>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string errorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const RemoteError& error) {
    return error.what();
  }
  return "nothing was raised";
}

TEST(Sandbox, ForbidsByARemoteErrorThatNamesTheActAndLogsIt) {
  testing::internal::CaptureStderr();
  {
    OwnPool pool(1, {"ISOPOOL_SANDBOX=strict", "ISOPOOL_LOG=warning"});
    for (int round = 0; round < 2; ++round) {
      InterpreterSession session = pool.manager().acquireOne();
      const std::string text =
          errorOf([&] { session.global("socket", "socket")(at::ArrayRef<at::IValue>()); });
      EXPECT_TRUE(contains(text, "PermissionError")) << text;
      EXPECT_TRUE(contains(text,
                           "isopool: the sandbox (strict) forbids system call socket; see "
                           "ISOPOOL_SANDBOX_NETWORK"))
          << text;
    }
    EXPECT_GT(pool.subject().number("pid"), 0);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t line = log.find("forbade system call socket");
  EXPECT_NE(line, std::string::npos) << log;
  EXPECT_EQ(log.find("forbade system call socket", line + 1), std::string::npos) << log;
}

TEST(Sandbox, HasTheNetworkAndCoreDumpsHoweverTheSwitchesAreSpelled) {
  OwnPool pool(1,
               {"ISOPOOL_SANDBOX=strict", "ISOPOOL_SANDBOX_NETWORK=yes", "ISOPOOL_CORE_DUMPS=on"});
  InterpreterSession session = pool.manager().acquireOne();
  EXPECT_EQ(errorOf([&] { session.global("socket", "socket")(at::ArrayRef<at::IValue>()); }),
            "nothing was raised");
  const at::IValue limits =
      session.global("resource", "getrlimit")({at::IValue(int64_t{RLIMIT_CORE})}).toIValue();
  struct rlimit ours {};
  ASSERT_EQ(::getrlimit(RLIMIT_CORE, &ours), 0);
  EXPECT_EQ(limits.toTuple()->elements()[1].toInt(), static_cast<int64_t>(ours.rlim_max));
}

TEST(Sandbox, KeepsACapOnMemoryThatAWorkerSurvives) {
  OwnPool pool(1, {"ISOPOOL_WORKER_MEMORY=256MiB"});
  const pid_t process = pool.processOf(0);
  {
    InterpreterSession session = pool.manager().acquireOne();
    const std::string text =
        errorOf([&] { session.global("builtins", "bytearray")({int64_t{1} << 30}); });
    EXPECT_TRUE(contains(text, "MemoryError")) << text;
    EXPECT_TRUE(contains(text,
                         "isopool: the worker's memory is limited to 256 MiB "
                         "(ISOPOOL_WORKER_MEMORY)"))
        << text;
  }
  EXPECT_EQ(pool.subject().number("pid"), process);
}

TEST(Sandbox, ThatMakesNoSenseEndsTheConstructorWithOneLine) {
  const ProcessMark mark;
  const ScopedVariable variable(mark.variable());
  const ScopedVariable level("ISOPOOL_SANDBOX=paranoid");
  try {
    const InterpreterManager manager(1);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_TRUE(contains(
        error.what(), "ISOPOOL_SANDBOX=paranoid: 'paranoid' is not one of none, default, strict"))
        << error.what();
  }
}

TEST(Sandbox, HidesAFolderOfModulesThatNobodyOpened) {
  const auto folder = testFolder() / "hidden-modules";
  std::filesystem::create_directories(folder);
  const ProcessMark mark;
  const ScopedVariable variable(mark.variable());
  const ScopedVariable level("ISOPOOL_SANDBOX=strict");
  InterpreterManager manager(1, std::make_shared<PathEnvironment>(folder.string()));
  const std::string text = errorOf([&] { manager.acquireOne().global("module_in_it", "answer"); });
  EXPECT_TRUE(contains(text, "hides the folder " + folder.string() + " of sys.path")) << text;
  EXPECT_TRUE(contains(text, "ISOPOOL_SANDBOX_READ")) << text;
}

}  // namespace
}  // namespace isopool::tests
