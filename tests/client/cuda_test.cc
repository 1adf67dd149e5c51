// SPDX-License-Identifier: BSD-3-Clause
// torch's CUDA build, on machines with and without a device. With the CPU build the first two hold,
// too.
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
    session.global("torch", "ones").call({3}, {{"device", "cuda"}}, {.deadline = seconds(60)});
  } catch (const RemoteError& error) {
    return error.message();
  }
  return "";
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
    const Obj ones = session.global("torch", "ones").callKwargs({3}, {{"device", "cuda"}});
    EXPECT_EQ(ones.attr("sum")(std::vector<at::IValue>{})
                  .attr("item")(std::vector<at::IValue>{})
                  .toIValue()
                  .toDouble(),
              3.0);
  }
}

}  // namespace
}  // namespace isopool::tests
