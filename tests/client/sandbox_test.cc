// SPDX-License-Identifier: BSD-3-Clause
// The sandbox as a program and its operator see it. tests/worker tests every
// forbidden operation.
#include <signal.h>
#include <sys/resource.h>

#include <cerrno>

#include "testing/sanitizers.h"
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

// ---- memory of a worker and its processes together ---------------------------------------------

// Each takes about 1.5 GB, of which RLIMIT_DATA counts at most 300 MB at a time in a process, and
// waits.
struct Excess {
  const char* name;
  const char* level;
  const char* source;
  const char* who;
};

constexpr const char* kTake = R"(
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
PART = 100 << 20
def take(flags, size=PART):
    memory = libc.mmap(None, size, 3, flags, -1, 0)
    if memory == ctypes.c_void_p(-1).value: raise MemoryError
    libc.memset(memory, 1, size)
    return memory
)";

constexpr Excess kExcesses[] = {{"ReadOnly", "strict", R"(
for _ in range(15): libc.mprotect(take(0x22), PART, 1)
while True: signal.pause()
)",
                                 "it has "},
                                {"GrowingDown", "default", R"(
for _ in range(15): take(0x122)
while True: signal.pause()
)",
                                 "it has "},
                                {"Children", "strict", R"(
for _ in range(6):
    if os.fork() == 0:
        keep = [take(0x22) for _ in range(2)]
        while True: signal.pause()
while True: signal.pause()
)",
                                 "processes that its code has started have "},
                                {"Daemons", "strict", R"(
for _ in range(6):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            keep = [take(0x22) for _ in range(2)]
            while True: signal.pause()
        os._exit(0)
while True: signal.pause()
)",
                                 "processes that its code has started have "}};

class SandboxMemory : public ::testing::TestWithParam<Excess> {};

TEST_P(SandboxMemory, IsALimitForAWorkerAndItsProcessesTogether) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << "the sanitizer's memory is not limited";
  testing::internal::CaptureStderr();
  std::string loss = "the worker lives on";
  {
    OwnPool pool(1, {std::string("ISOPOOL_SANDBOX=") + GetParam().level,
                     "ISOPOOL_WORKER_MEMORY=256MiB", "ISOPOOL_LOG=warning"});
    pool.manager().registerModuleSource("excess", std::string(kTake) + GetParam().source);
    const pid_t process = pool.processOf(0);
    InterpreterSession session = pool.manager().acquireOne();
    try {
      session.global("excess", "x");
    } catch (const WorkerLost& lost) {
      loss = lost.what();
    }
    // The death is logged when the worker is reaped.
    EXPECT_TRUE(waitUntil([&] { return ::kill(process, 0) == -1 && errno == ESRCH; }));
    EXPECT_GT(pool.subject().number("pid"), 0);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  for (const std::string& text : {loss, log}) {
    EXPECT_TRUE(contains(text, GetParam().who)) << text;
    EXPECT_TRUE(contains(text, " of private memory, and the limit is ")) << text;
    EXPECT_TRUE(contains(text, "(ISOPOOL_WORKER_MEMORY)")) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, SandboxMemory, ::testing::ValuesIn(kExcesses),
                         [](const auto& each) { return std::string(each.param.name); });

// All that the limit allows, in the worker and, by copies, in a process: nothing is killed.
TEST(Sandbox, LetsAWorkerHaveAllThatTheLimitAllows) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << "the sanitizer's memory is not limited";
  OwnPool pool(1, {"ISOPOOL_WORKER_MEMORY=256MiB"});
  pool.manager().registerModuleSource("all", std::string(kTake) + R"(
import time
keep = [take(0x22, 200 << 20)]
child = os.fork()
if child == 0:
    while True: signal.pause()
time.sleep(1.5)
os.kill(child, 9)
os.waitpid(child, 0)
answer = 42
)");
  InterpreterSession session = pool.manager().acquireOne();
  EXPECT_EQ(session.global("all", "answer").toIValue().toInt(), 42);
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
