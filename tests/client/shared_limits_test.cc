// SPDX-License-Identifier: BSD-3-Clause
// The limits that the operator of a shared supervisor sets for each program.
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>

#include "ipc/control/operator_messages.h"
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

// Each thread gets the refusal, even if it asks while another thread waits for it. No refused file
// counts as loaded.
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

TEST_F(SharedLimits, ALimitOfCallsCountsThoseThatWaitForAWorker) {
  constexpr size_t kLimit = 6;  // a worker is sent two calls at a time
  serve({"--client-calls", std::to_string(kLimit)});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const Gate gate;
  auto running = std::async(std::launch::async, [&] { subject.ask("wait_at", gate.arguments()); });
  gate.arrival();
  CallOptions brief;  // so that a call which is not refused does not wait for the gate
  brief.deadline = milliseconds(1000);
  std::vector<std::future<void>> waiting;
  for (size_t i = 1; i < kLimit; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] { subject.ask("pid"); }));
  }
  // The calls wait for a worker, run, or are in the worker's ring.
  EXPECT_TRUE(waitUntil([&] {
    const PoolStatistics now = manager->statistics();
    return now.callersWaiting + now.workers[0].callsInFlight == kLimit;
  }));
  std::string refusal = "none";
  try {
    subject.ask("pid", {}, brief);
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  EXPECT_NE(refusal.find("limits.calls"), std::string::npos) << refusal;
  gate.open();
  running.get();
  for (auto& each : waiting) EXPECT_NO_THROW(each.get());
  EXPECT_NO_THROW(subject.number("pid"));
}

TEST_F(SharedLimits, ALimitOfCallsCountsAsynchronousCallsUntilTheirOutcome) {
  serve({"--client-calls", "4"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const Gate gate;
  std::vector<PendingCall> calls;
  calls.push_back(
      subject.object().callAsync({"wait_at", gate.arguments()[0], gate.arguments()[1]}));
  for (int i = 0; i < 3; ++i) calls.push_back(subject.object().callAsync({"pid"}));
  EXPECT_NE(limitMetBy([&] { subject.object().callAsync({"pid"}); }).find("limits.calls"),
            std::string::npos);
  gate.open();
  for (const PendingCall& each : calls) EXPECT_NO_THROW(each.get());
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

TEST_F(SharedLimits, ALimitOfMemoryNamesItselfToAResultBeyondIt) {
  serve({"--client-memory", "32MiB"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const std::string text = limitMetBy([&] { subject.tensor("matrix", {4096}); });  // 64 MiB
  EXPECT_NE(text.find("limits.memory, ISOPOOL_CLIENT_MEMORY"), std::string::npos) << text;
  EXPECT_EQ(text.find("ISOPOOL_OUTPUT_ARENA_LIMIT"), std::string::npos) << text;
  EXPECT_NO_THROW(subject.tensor("matrix", {16}));
}

TEST_F(SharedLimits, ALimitOfMemoryHoldsForObjectsBehindHandles) {
  constexpr uint64_t kLimit = uint64_t{64} << 20;
  serve({"--workers", "1", "--client-memory", "64MiB"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  InterpreterSession session = subject.object().acquireSession();
  std::vector<Obj> held;
  const std::string text = limitMetBy([&] {
    // 8 MiB each
    while (held.size() < 40) held.push_back(session.self.attr("matrix")({1448}));
  });
  EXPECT_NE(text.find("limits.memory"), std::string::npos) << text;
  EXPECT_GE(held.size(), 2u);
  EXPECT_TRUE(supervisor().waitForReport([&](const ipc::Report& report) {
    const ipc::ReportedClient& client = report.clients.at(0);
    return client.handles >= held.size() && client.handleBytes > 0 && client.handleBytes <= kLimit;
  }));
  // Other programs are not affected, and released objects free memory under the limit.
  const auto another = attach(1);
  EXPECT_NO_THROW(Subject(*another).number("pid"));
  held.clear();
  EXPECT_TRUE(waitUntil([&] {
    return limitMetBy([&] { session.self.attr("matrix")({1448}); }) == "no limit was met";
  }));
}

TEST_F(SharedLimits, ALimitOfMemoryHoldsForValuesThatBecomeHandles) {
  serve({"--workers", "1", "--client-memory", "64MiB"});
  const auto manager = attach(1);
  InterpreterSession session = manager->acquireOne();
  std::vector<Obj> held;
  const std::string text = limitMetBy([&] {
    while (held.size() < 40) {
      held.push_back(session.fromIValue(at::ones({int64_t{8} << 20}, at::kByte)));
    }
  });
  EXPECT_NE(text.find("limits.memory"), std::string::npos) << text;
}

}  // namespace
}  // namespace isopool::tests
