// SPDX-License-Identifier: BSD-3-Clause
// What the operator of a shared supervisor does not let a program have.
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>

#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

class SharedLimits : public AttachedManagers {};

template <typename Act>
std::string limitMetBy(Act&& act) {
  try {
    act();
  } catch (const LimitExceeded& error) {
    return error.what();
  }
  return "no limit was met";
}

TEST_F(SharedLimits, ALimitOfModelsRefusesTheNextPackage) {
  serve({"--client-models", "1"});
  const auto manager = attach();
  Package package = manager->loadPackage(packagePath());
  EXPECT_NE(
      limitMetBy([&] { manager->loadPackage(packagePath("values.pt")); }).find("limits.models"),
      std::string::npos);
  EXPECT_NO_THROW(package.loadPickle("model", "model.pkl")({"pid"}));
}

// Each gets the refusal, also who asks while another waits for it, and none is counted as loaded.
TEST_F(SharedLimits, ALimitOfModelsRefusesOneFileToEachOfManyThreads) {
  serve({"--client-models", "1"});
  const auto manager = attach();
  auto first = std::make_unique<Package>(manager->loadPackage(packagePath()));
  const std::string file = packagePath("one.pt");
  const auto inThreads = [](const std::function<void()>& work) {
    std::vector<std::future<void>> threads;
    for (int i = 0; i < 8; ++i) threads.push_back(std::async(std::launch::async, work));
    for (auto& thread : threads) thread.get();
  };
  std::atomic<int> refused{0};
  inThreads([&] {
    for (int i = 0; i < 50; ++i) {
      const std::string text = limitMetBy([&] { manager->loadPackage(file); });
      if (text.find("limits.models") != std::string::npos) ++refused;
    }
  });
  EXPECT_EQ(refused, 400);
  first.reset();
  std::atomic<int> loaded{0};
  inThreads([&] {
    for (int i = 0; i < 50; ++i) {
      Package package = manager->loadPackage(file);
      if (i % 10 == 0) package.loadPickle("model", "model.pkl")({at::ones({1, 2})});
      ++loaded;
    }
  });
  EXPECT_EQ(loaded, 400);
}

TEST_F(SharedLimits, ALimitOfCallsRefusesTheNextCallAtOnce) {
  serve({"--client-calls", "1"});
  const auto manager = attach();
  const Subject subject(*manager);
  const Gate gate;
  auto running = std::async(std::launch::async, [&] { subject.ask("wait_at", gate.arguments()); });
  gate.arrival();
  EXPECT_NE(limitMetBy([&] { subject.number("pid"); }).find("limits.calls"), std::string::npos);
  gate.open();
  running.get();
  EXPECT_NO_THROW(subject.number("pid"));
}

TEST_F(SharedLimits, ALimitOfResultsHeldRefusesTheNextCallBeforeItRuns) {
  serve({"--client-leases", "3"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const std::string log = testFolder() / "limit_of_results.txt";
  const at::Tensor input = isopool::empty({1 << 16}).fill_(1);
  std::vector<at::Tensor> held;
  for (int i = 0; i < 3; ++i) held.push_back(subject.tensor("add_one", {input}));
  EXPECT_NE(limitMetBy([&] {
              subject.ask("log", {log, "it ran"});
            }).find("limits.leases"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(log));
  held.pop_back();
  EXPECT_NO_THROW(subject.ask("log", {log, "it ran"}));
}

TEST_F(SharedLimits, ACallThatALimitRefusesKeepsNoneOfItsInputs) {
  serve({"--client-leases", "1"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const at::Tensor held = subject.tensor("add_one", {isopool::empty({1 << 16}).fill_(1)});
  const uint64_t before = manager->statistics().inputBytesInUse;
  for (int i = 0; i < 20; ++i) {
    limitMetBy([&] { subject.ask("describe", {isopool::empty({1 << 16}).fill_(1)}); });
  }
  EXPECT_LE(manager->statistics().inputBytesInUse, before);
}

TEST_F(SharedLimits, ALimitOfMemoryRefusesACallWhoseInputIsBeyondIt) {
  serve({"--client-memory", "64MiB"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const at::Tensor large = isopool::empty({int64_t{100} << 20}, at::kByte).fill_(1);
  EXPECT_NE(limitMetBy([&] { subject.ask("describe", {large}); }).find("limits.memory"),
            std::string::npos);
  EXPECT_NO_THROW(subject.number("pid"));
}

}  // namespace
}  // namespace isopool::tests
