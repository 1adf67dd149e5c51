// SPDX-License-Identifier: BSD-3-Clause
// A supervisor that is stopped for a time, with all its processes or alone: no worker is lost for
// that time.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <thread>

#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

class StoppedSupervisor : public ::testing::Test {
 protected:
  pid_t workerPid(uint64_t worker) { return client_->worker(worker).introduction.processId; }
  /// Longer than each limit below. Then the supervisor runs again, and `last` a moment later.
  void stopWith(pid_t last) {
    ASSERT_EQ(::kill(last, SIGSTOP), 0);
    ASSERT_EQ(::kill(pid_, SIGSTOP), 0);
    std::this_thread::sleep_for(milliseconds(1500));
    ASSERT_EQ(::kill(pid_, SIGCONT), 0);
    std::this_thread::sleep_for(milliseconds(30));
    ASSERT_EQ(::kill(last, SIGCONT), 0);
  }

  void expectThatItLives(uint64_t worker) {
    // The first answer is that of the call before.
    EXPECT_TRUE(client_->call(worker, "lives").has_value());
    EXPECT_EQ(client_->call(worker, "on"), "lives");
    EXPECT_FALSE(client_->worker(worker).died.has_value());
  }

  SharedSupervisor supervisor_{{"--workers", "1", "--grace", "1s", "--client-call-time", "1s"}};
  std::unique_ptr<ControlClient> client_ = supervisor_.attachWithPool(1);
  const pid_t pid_ = supervisor_.supervisorPid();
};

TEST_F(StoppedSupervisor, DoesNotCountThatTimeInAGracePeriod) {
  const uint64_t worker = client_->serving(1, 0);
  client_->post(worker, "!spin 600");
  client_->send(ipc::ReportOverdue{worker, 1});
  std::this_thread::sleep_for(milliseconds(100));
  stopWith(workerPid(worker));
  expectThatItLives(worker);
}

TEST_F(StoppedSupervisor, DoesNotCountThatTimeInTheTimeOfACall) {
  const uint64_t worker = client_->serving(1, 0);
  client_->post(worker, "!spin 600");
  std::this_thread::sleep_for(milliseconds(100));
  stopWith(workerPid(worker));
  expectThatItLives(worker);
  EXPECT_TRUE(client_->callTimesOver().empty());
}

}  // namespace
}  // namespace isopool::tests
