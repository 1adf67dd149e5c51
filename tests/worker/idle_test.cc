// SPDX-License-Identifier: BSD-3-Clause
// What an idle worker costs.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "testing/context_switches.h"
#include "tests/worker/harness.h"

namespace isopool::tests {
namespace {

constexpr uint64_t kArenaBytes = 64 << 10;

class IdleWorker : public ::testing::TestWithParam<size_t> {};

TEST_P(IdleWorker, OfAnyNumberOfClientsSleepsAndIsWokenByEach) {
  const auto worker = sharedZygote().fork(1);
  std::vector<std::unique_ptr<TestClient>> clients;
  while (clients.size() < GetParam()) {
    clients.push_back(std::make_unique<TestClient>(*worker, kArenaBytes, kArenaBytes));
  }
  EXPECT_TRUE(restsForASecond([&] { return contextSwitchesOf(worker->pid); }))
      << "its threads wake each other before the first call";
  for (const auto& client : clients) {
    EXPECT_EQ(
        client->ask(ipc::Operation::kPing, [](auto& writer) { writer.packer().pack_array(0); })
            .status,
        ipc::CompletionStatus::kValue);
  }
  EXPECT_TRUE(restsForASecond([&] { return contextSwitchesOf(worker->pid); }))
      << "its threads wake each other after a call";
}

// The kernel lets a thread sleep on 128 words, one of which is the supervisor's doorbell.
INSTANTIATE_TEST_SUITE_P(Clients, IdleWorker, ::testing::Values(1, 127, 128, 300));

}  // namespace
}  // namespace isopool::tests
