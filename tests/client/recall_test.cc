// SPDX-License-Identifier: BSD-3-Clause
// Requests that are taken back in the moment in which their worker starts them. The test plays the
// worker.
#include <gtest/gtest.h>

#include <thread>

#include "client/transport/cancellation_token.h"
#include "client/transport/migration.h"
#include "tests/client/harness.h"
#include "tests/client/played_worker.h"

namespace isopool::tests {
namespace {

using client::Clock;
using client::RequestOutcome;

constexpr uint64_t kFirst = 1;

// The worker has announced the start and then finds that the program takes the call back. The
// program took it back before that, and finds that the worker has announced the start.
TEST(RecalledRequest, ThatTheWorkerLeavesOutAtItsStartIsToBeMadeAgain) {
  PlayedWorker worker;
  client::CancellationToken token;
  RequestOutcome outcome{};
  std::thread caller(
      [&] { outcome = worker.call(std::nullopt, ipc::Operation::kPing, &token).outcome(); });
  EXPECT_TRUE(waitUntil([&] { return worker.callsPublished() == kFirst; }));
  worker.start(kFirst);
  EXPECT_FALSE(token.cancel());
  worker.answer(kFirst, ipc::CompletionStatus::kWithdrawn, {});
  caller.join();
  EXPECT_EQ(outcome, RequestOutcome::kNeverStarted);
  EXPECT_TRUE(token.cancel()) << "it is made again, so it can be cancelled";
  EXPECT_EQ(worker.killed(), "");
}

/// A place at another worker is free. While it is found, the worker starts its first call.
class AnotherPlace : public client::Migration {
 public:
  explicit AnotherPlace(PlayedWorker& worker) : worker_(worker) { nextLook_ = Clock::now(); }
  bool findPlace(client::WorkerLink&, client::PendingRequest&) override {
    asked_ = true;
    worker_.start(kFirst);
    return true;
  }
  bool ended() const { return ended_; }

 private:
  void endSearch() override { ended_ = true; }

  PlayedWorker& worker_;
  bool ended_ = false;
};

TEST(RecalledRequest, ThatTheWorkerLeavesOutWhileItMovesIsToBeMadeAgain) {
  PlayedWorker worker;
  AnotherPlace elsewhere(worker);
  RequestOutcome outcome{};
  std::thread caller([&] {
    outcome = worker.call(std::nullopt, ipc::Operation::kPing, nullptr, &elsewhere).outcome();
  });
  EXPECT_TRUE(waitUntil([&] { return worker.recalled(kFirst); }));
  worker.answer(kFirst, ipc::CompletionStatus::kWithdrawn, {});
  caller.join();
  EXPECT_EQ(outcome, RequestOutcome::kNeverStarted);
  EXPECT_FALSE(elsewhere.left());
  EXPECT_TRUE(elsewhere.ended()) << "the place stays reserved";
  EXPECT_EQ(worker.killed(), "");
}

TEST(RecalledRequest, ThatWasNotRecalledCanNotBeWithdrawnByTheWorker) {
  PlayedWorker worker;
  worker.answer(kFirst, ipc::CompletionStatus::kWithdrawn, {});
  const client::Answer answer = worker.call(Clock::now() + milliseconds(500));
  EXPECT_NE(worker.killed().find("its completion ring is inconsistent"), std::string::npos)
      << worker.killed();
}

}  // namespace
}  // namespace isopool::tests
