// SPDX-License-Identifier: BSD-3-Clause
// torch's CUDA build, on machines with and without a device. With the CPU build the first two hold,
// too.
#include <signal.h>

#include <fstream>
#include <tuple>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using std::chrono::seconds;

bool isTrue(InterpreterSession& session, const char* module, const char* name) {
  return session.global(module, name)(std::vector<at::IValue>{}).toIValue().toBool();
}

// What torch's message is in the worker for a tensor on a CUDA device; empty if there was none.
std::string refusalOfATensorOnADevice(InterpreterSession& session) {
  try {
    std::ignore =
        session.global("torch", "ones").call({3}, {{"device", "cuda"}}, {.deadline = seconds(60)});
  } catch (const RemoteError& error) {
    return error.message();
  }
  return "";
}

PoolOptions options(size_t workers, std::vector<std::string> gpus) {
  PoolOptions options;
  options.workers = workers;
  options.spares = 1;
  options.gpus = std::move(gpus);
  return options;
}

bool hasDevice() {
  InterpreterSession session = sharedManager().acquireOne();
  return isTrue(session, "torch.cuda", "is_available");
}

double sumOfThreeOnes(InterpreterSession& session) {
  const Obj ones = session.global("torch", "ones").callKwargs({3}, {{"device", "cuda"}});
  return ones.attr("sum")(std::vector<at::IValue>{})
      .attr("item")(std::vector<at::IValue>{})
      .toIValue()
      .toDouble();
}

std::string gpusSeenBy(const Interpreter& worker) {
  InterpreterSession session = worker.acquireSession();
  const auto seen = session.global("os", "getenv")({"CUDA_VISIBLE_DEVICES"}).toIValue();
  return seen.isString() ? seen.toStringRef() : "all";
}

// A module for preload_modules: PoolOptions that import it from a folder of its own.
PoolOptions preloading(const std::string& name, const std::string& source) {
  const auto folder = testFolder() / name;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / (name + ".py")) << source;
  PoolOptions preloads = options(1, {});
  preloads.variables = {{"PYTHONPATH", folder}};
  preloads.preloadModules = {name};
  return preloads;
}

// A process that forks with a CUDA context gives it to children that can't use it.
TEST(Cuda, WorkersStartWithoutAContext) {
  InterpreterSession session = sharedManager().acquireOne();
  EXPECT_FALSE(isTrue(session, "torch.cuda", "is_initialized"));
  EXPECT_FALSE(isTrue(session, "torch.cuda", "_is_in_bad_fork"));
}

TEST(Cuda, ATensorOnADeviceIsMadeOrTorchSaysWhyNot) {
  InterpreterSession session = sharedManager().acquireOne();
  const std::string refusal = refusalOfATensorOnADevice(session);
  const bool hasDevice = isTrue(session, "torch.cuda", "is_available");
  EXPECT_EQ(refusal.empty(), hasDevice) << refusal;
  if (!hasDevice) {
    // "Found no NVIDIA driver on your system." or "Torch not compiled with CUDA enabled".
    EXPECT_TRUE(refusal.find("NVIDIA driver") != std::string::npos ||
                refusal.find("not compiled with CUDA") != std::string::npos ||
                refusal.find("No CUDA GPUs are available") != std::string::npos)
        << refusal;
  }
}

TEST(Cuda, EachOfSeveralWorkersComputesOnTheDevice) {
  InterpreterManager& manager = sharedManager();
  for (const Interpreter& worker : manager.allInstances()) {
    InterpreterSession session = worker.acquireSession();
    if (!isTrue(session, "torch.cuda", "is_available")) {
      GTEST_SKIP() << "this machine or this torch has no CUDA device";
    }
    EXPECT_EQ(sumOfThreeOnes(session), 3.0);
  }
}

TEST(Cuda, EachSlotHasItsGpuAndSoHasTheWorkerThatReplacesADeadOne) {
  InterpreterManager manager(options(3, {"7", "GPU-8e2f"}));
  const auto& workers = manager.allInstances();
  EXPECT_EQ(gpusSeenBy(workers[0]), "7");
  EXPECT_EQ(gpusSeenBy(workers[2]), "7");
  for (int death = 0; death < 3; ++death) {
    EXPECT_EQ(gpusSeenBy(workers[1]), "GPU-8e2f");
    const pid_t victim = workers[1].processId().value_or(-1);
    ASSERT_GT(victim, 0);
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    ASSERT_TRUE(waitUntil([&] {
      const auto now = workers[1].processId();
      return now && *now != victim;
    }));
  }
  EXPECT_EQ(gpusSeenBy(workers[1]), "GPU-8e2f");
}

// Many modules begin with `DEVICE = "cuda" if torch.cuda.is_available() else "cpu"`.
TEST(Cuda, APreloadedModuleMayAskForDevicesAndItsWorkersCanUseThem) {
  InterpreterManager manager(
      preloading("asks_for_devices", "import torch\nDEVICES = torch.cuda.is_available()\n"));
  InterpreterSession session = manager.acquireOne();
  const bool asked = session.global("asks_for_devices", "DEVICES").toIValue().toBool();
  EXPECT_EQ(asked, isTrue(session, "torch.cuda", "is_available"));
  EXPECT_FALSE(isTrue(session, "torch.cuda", "_is_in_bad_fork"));
  if (asked) {
    EXPECT_EQ(sumOfThreeOnes(session), 3.0);
  }
}

TEST(Cuda, APreloadedModuleThatUsesADeviceIsRefused) {
  if (!hasDevice()) GTEST_SKIP() << "this machine or this torch has no CUDA device";
  try {
    InterpreterManager manager(preloading("uses_a_device",
                                          "import torch\n"
                                          "ONES = torch.ones(3, device='cuda')\n"));
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the zygote has used CUDA"), std::string::npos)
        << error.what();
  }
}

TEST(Cuda, AStrictWorkerUsesTheGpusOfTheSettingAndIsToldOfTheSettingWithoutIt) {
  if (!hasDevice()) GTEST_SKIP() << "this machine or this torch has no CUDA device";
  PoolOptions strict = options(1, {"0"});
  strict.sandbox = SandboxLevel::kStrict;
  strict.sandboxNetwork = true;  // CUDA makes a Unix socket
  InterpreterManager allowed(strict);
  InterpreterSession user = allowed.acquireOne();
  EXPECT_EQ(sumOfThreeOnes(user), 3.0);
  strict.gpus = {};
  InterpreterManager forbidden(strict);
  InterpreterSession other = forbidden.acquireOne();
  const std::string refusal = refusalOfATensorOnADevice(other);
  EXPECT_NE(refusal.find("ISOPOOL_WORKER_GPUS"), std::string::npos) << refusal;
}

}  // namespace
}  // namespace isopool::tests
