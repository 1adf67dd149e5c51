// SPDX-License-Identifier: BSD-3-Clause
// Workers that are replaced after a number of calls.
#include <gtest/gtest.h>

#include <string>

#include "ipc/control/operator_messages.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

TEST(Recycling, AfterSoManyCallsASpareTakesOverAndNoCallIsLost) {
  SharedSupervisor supervisor({"--workers", "1", "--recycle-calls", "20"});
  const auto client = supervisor.attachWithPool(1);
  ASSERT_NE(client->waitForSpare(), 0u);
  const uint64_t worker = client->serving(1, 0);
  const auto callOnce = [&] { ASSERT_EQ(client->call(client->serving(1, 0), "call"), "call"); };
  ASSERT_TRUE(client->waitFor(
      [&] {
        callOnce();
        return client->serving(1, 0) != worker;
      },
      milliseconds(10000)));
  // The supervisor repeats RetireWorker until the client releases the worker, which lives
  // until then.
  ASSERT_TRUE(client->waitFor([&] { return client->retired().size() >= 2; }));
  EXPECT_FALSE(client->worker(worker).died);
  EXPECT_EQ(client->call(worker, "a session on the old one"), "a session on the old one");
  client->send(ipc::WorkerReleased{worker});
  ASSERT_TRUE(client->waitFor([&] { return client->worker(worker).died.has_value(); }));
  callOnce();
  const ipc::Report report = supervisor.report();
  EXPECT_EQ(report.recycled, 1u);
  EXPECT_EQ(report.restarts, 0u);
}

TEST(Recycling, EndsTheOldWorkerAfterRecyclePatience) {
  SharedSupervisor supervisor(
      {"--workers", "1", "--recycle-age", "1s", "--recycle-patience", "200ms"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  EXPECT_TRUE(client->waitFor([&] { return client->worker(worker).died.has_value(); },
                              milliseconds(10000)));
  EXPECT_TRUE(client->waitFor([&] {
    return supervisor.log().find("ISOPOOL_RECYCLE_PATIENCE") != std::string::npos;
  })) << supervisor.log();
}

}  // namespace
}  // namespace isopool::tests
