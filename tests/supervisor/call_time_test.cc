// SPDX-License-Identifier: BSD-3-Clause
// The limit of time that a supervisor sets for calls.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

TEST(CallTime, OverTheLimitReplacesTheWorkerThoughTheClientReportsNothing) {
  SharedSupervisor supervisor({"--workers", "1", "--client-call-time", "200ms", "--grace", "50ms"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  client->post(worker, "!hang");
  ASSERT_TRUE(client->waitFor([&] { return client->worker(worker).died.has_value(); }));
  ASSERT_EQ(client->callTimesOver().size(), 1u);
  EXPECT_EQ(client->callTimesOver()[0].epoch, worker);
  EXPECT_NE(client->callTimesOver()[0].text.find("limits.call_time"), std::string::npos);
  // The supervisor logs after it has sent the message to the clients.
  EXPECT_TRUE(client->waitFor([&] {
    return supervisor.log().find("ISOPOOL_CLIENT_CALL_TIME") != std::string::npos;
  })) << supervisor.log();
  ASSERT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
  EXPECT_EQ(client->call(client->serving(1, 0), "served"), "served");
}

TEST(CallTime, UnderTheLimitDisturbsNoCall) {
  SharedSupervisor supervisor({"--workers", "1", "--client-call-time", "2s"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  // Together, the calls take longer than the limit.
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(client->call(worker, "!spin 200").has_value());
  EXPECT_TRUE(client->callTimesOver().empty());
  EXPECT_EQ(client->serving(1, 0), worker);
}

TEST(CallTime, IsLimitedByAReloadWhileTheCallRuns) {
  SharedSupervisor supervisor({"--workers", "1"}, "grace = \"50ms\"\n");
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  client->post(worker, "!hang");
  supervisor.writeSettings("grace = \"50ms\"\n[limits]\ncall_time = \"100ms\"\n");
  supervisor.signal(SIGHUP);
  EXPECT_TRUE(client->waitFor([&] { return client->worker(worker).died.has_value(); }));
}

TEST(CallTime, OfAClassHoldsForItsClientsOnly) {
  SharedSupervisor supervisor({"--workers", "2", "--client-call-time", "1h", "--grace", "50ms"},
                              "[class.web]\nprogram = \"web\"\ncall_time = \"200ms\"\n");
  const auto web = supervisor.attachWithPool(2, "web");
  const auto other = supervisor.attachWithPool(2, "other");
  const uint64_t worker = web->serving(1, 0);
  const uint64_t patient = web->serving(1, 1);
  ASSERT_NE(worker, patient);
  other->post(patient, "!hang");
  web->post(worker, "!hang");
  ASSERT_TRUE(web->waitFor([&] { return web->worker(worker).died.has_value(); }));
  ASSERT_EQ(web->callTimesOver().size(), 1u);
  EXPECT_NE(web->callTimesOver()[0].text.find("class.web.call_time"), std::string::npos);
  EXPECT_TRUE(other->statistics().workers.size() >= 1);
  EXPECT_FALSE(other->worker(patient).died.has_value());
  EXPECT_TRUE(other->callTimesOver().empty());
}

TEST(CallTime, OfAClassMayLiftTheLimit) {
  SharedSupervisor supervisor({"--workers", "1", "--client-call-time", "100ms", "--grace", "20ms"},
                              "[class.batch]\nprogram = \"batch\"\ncall_time = \"0\"\n");
  const auto batch = supervisor.attachWithPool(1, "batch");
  const uint64_t worker = batch->serving(1, 0);
  EXPECT_TRUE(batch->call(worker, "!spin 600").has_value());
  EXPECT_EQ(batch->serving(1, 0), worker);
}

}  // namespace
}  // namespace isopool::tests
