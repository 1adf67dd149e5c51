// SPDX-License-Identifier: BSD-3-Clause
// Workers that a reload of the settings adds to a running supervisor, and those that it removes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>

#include "ipc/control/client_messages.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

std::set<uint64_t> workersOf(ControlClient& client, uint32_t slots) {
  std::set<uint64_t> workers;
  for (uint32_t slot = 0; slot < slots; ++slot) workers.insert(client.serving(1, slot));
  return workers;
}

void reload(const SharedSupervisor& supervisor, const std::string& settings) {
  supervisor.writeSettings(settings);
  supervisor.signal(SIGHUP);
}

TEST(ReloadOfWorkers, MoreServeAClientThatHadAskedForMoreThanThereWere) {
  SharedSupervisor supervisor({}, "workers = 1\n");
  const auto client = supervisor.attachWithPool(3);
  const uint64_t first = client->serving(1, 0);
  ASSERT_EQ(workersOf(*client, 3).size(), 1u);
  reload(supervisor, "workers = 3\n");
  ASSERT_TRUE(client->waitFor([&] { return workersOf(*client, 3).size() == 3; }));
  EXPECT_EQ(client->serving(1, 0), first);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(client->call(client->serving(1, slot), "served"), "served");
  }
  EXPECT_EQ(client->deaths(), 0u);
}

TEST(ReloadOfWorkers, MoreServeClientsThatAttachLater) {
  SharedSupervisor supervisor({}, "workers = 1\n");
  const auto before = supervisor.attachWithPool(1);
  reload(supervisor, "workers = 2\n");
  ASSERT_TRUE(
      supervisor.waitForReport([](const ipc::Report& report) { return report.slots.size() == 2; }));
  const auto later = supervisor.attachWithPool(1);
  EXPECT_NE(later->serving(1, 0), before->serving(1, 0));
  EXPECT_EQ(later->call(later->serving(1, 0), "served"), "served");
}

TEST(ReloadOfWorkers, FewerEndWhenTheirCallsHaveEndedAndTheirClientsReleaseThem) {
  SharedSupervisor supervisor({}, "workers = 3\n");
  const auto client = supervisor.attachWithPool(3);
  ASSERT_EQ(workersOf(*client, 3).size(), 3u);
  const auto slotOf = [&](uint64_t worker) {
    for (const ipc::ReportedWorker& each : supervisor.report().workers) {
      if (each.epoch == worker) return each.slot;
    }
    return -1;
  };
  uint64_t kept = 0;
  std::set<uint64_t> leaving = workersOf(*client, 3);
  for (const uint64_t worker : workersOf(*client, 3)) {
    if (slotOf(worker) == 0) kept = worker;
  }
  leaving.erase(kept);
  const uint64_t busy = *leaving.begin();
  const std::string gate = supervisor.folder() + "/gate";
  client->post(busy, "!await " + gate);
  ASSERT_TRUE(client->waitFor([&] { return client->worker(busy).end->hasStarted(1); }));

  reload(supervisor, "workers = 1\n");
  ASSERT_TRUE(client->waitFor([&] { return workersOf(*client, 3) == std::set<uint64_t>{kept}; }));
  const auto asked = [&](uint64_t worker) {
    return std::count(client->retired().begin(), client->retired().end(), worker) != 0;
  };
  for (const uint64_t worker : leaving) {
    ASSERT_TRUE(client->waitFor([&] { return asked(worker); }));
    client->send(ipc::WorkerReleased{worker});
  }
  const uint64_t idle = *leaving.rbegin();
  ASSERT_TRUE(client->waitFor([&] { return client->worker(idle).died.has_value(); }));
  EXPECT_FALSE(client->worker(busy).died) << "its call runs";
  std::ofstream(gate) << "";
  ipc::ClientEnd& end = *client->worker(busy).end;
  ASSERT_TRUE(client->waitFor([&] { return end.completionReady(); }));
  ASSERT_TRUE(client->waitFor([&] { return client->worker(busy).died.has_value(); }));
  EXPECT_EQ(client->call(kept, "served"), "served");
  const ipc::Report report = supervisor.report();
  EXPECT_EQ(report.slots.size(), 1u);
  EXPECT_EQ(report.restarts, 0u);
}

TEST(ReloadOfWorkers, FewerServeAClientWhoseOnlyWorkerIsGone) {
  SharedSupervisor supervisor({}, "workers = 2\n");
  const auto one = supervisor.attachWithPool(1);
  const auto other = supervisor.attachWithPool(1);
  ASSERT_NE(one->serving(1, 0), other->serving(1, 0));
  reload(supervisor, "workers = 1\n");
  ASSERT_TRUE(
      supervisor.waitForReport([](const ipc::Report& report) { return report.slots.size() == 1; }));
  const uint64_t kept = [&] {
    for (const ipc::ReportedWorker& each : supervisor.report().workers) {
      if (each.slot == 0) return each.epoch;
    }
    return uint64_t{0};
  }();
  for (ControlClient* each : {one.get(), other.get()}) {
    ASSERT_TRUE(each->waitFor([&] { return each->serving(1, 0) == kept; }));
    EXPECT_EQ(each->call(kept, "served"), "served");
  }
}

TEST(ReloadOfWorkers, FewerNotifyClientsThatAreLeftWithASlotInQuarantine) {
  const std::string settings =
      "spares = 0\nrestart_limit = 1\nquarantine = \"60s\"\n[recycle]\npatience = \"100ms\"\n";
  SharedSupervisor supervisor({}, "workers = 2\n" + settings);
  const auto one = supervisor.attachWithPool(1);
  const auto other = supervisor.attachWithPool(1);
  const auto slotOf = [&](ControlClient& client) {
    for (const ipc::ReportedWorker& each : supervisor.report().workers) {
      if (each.epoch == client.serving(1, 0)) return each.slot;
    }
    return -1;
  };
  ControlClient& left = slotOf(*one) == 1 ? *one : *other;
  ControlClient& victim = slotOf(*one) == 1 ? *other : *one;
  ASSERT_EQ(slotOf(victim), 0);
  ASSERT_EQ(::kill(victim.worker(victim.serving(1, 0)).introduction.processId, SIGKILL), 0);
  ASSERT_TRUE(victim.waitFor([&] { return victim.serving(1, 0) == left.serving(1, 0); }));
  EXPECT_TRUE(victim.quarantines().empty());
  EXPECT_TRUE(left.quarantines().empty());
  reload(supervisor, "workers = 1\n" + settings);
  for (ControlClient* each : {&left, &victim}) {
    EXPECT_TRUE(each->waitFor([&] { return !each->quarantines().empty(); }));
  }
}

TEST(ReloadOfWorkers, RepeatedEndsWithTheLastNumber) {
  SharedSupervisor supervisor({}, "workers = 2\n[recycle]\npatience = \"200ms\"\n");
  const auto client = supervisor.attachWithPool(4);
  for (const int workers : {4, 1, 3, 2, 5, 2}) {
    const std::string number = std::to_string(workers);
    reload(supervisor, "workers = " + number + "\n[recycle]\npatience = \"200ms\"\n");
    ASSERT_TRUE(client->waitFor(
        [&] { return supervisor.report().slots.size() == static_cast<size_t>(workers); }));
  }
  ASSERT_TRUE(
      client->waitFor([&] { return supervisor.report().workers.size() == 3; }, milliseconds(10000)))
      << "two workers and a spare";
  for (uint32_t slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(client->call(client->serving(1, slot), "served"), "served");
  }
}

TEST(ReloadOfClasses, ANewClassHasItsWorkersForClientsThatAttachLater) {
  SharedSupervisor supervisor({}, "workers = 1\n");
  const auto before = supervisor.attachWithPool(1, "gold");
  reload(supervisor,
         "workers = 1\n[class.gold]\nprogram = \"gold\"\ndedicated_workers = 1\nshare = 3\n");
  ASSERT_TRUE(supervisor.waitForReport(
      [](const ipc::Report& report) { return report.groups.size() == 2; }));
  const auto later = supervisor.attachWithPool(1, "gold");
  EXPECT_EQ(later->call(later->serving(1, 0), "served"), "served");
  EXPECT_NE(later->serving(1, 0), before->serving(1, 0));
  EXPECT_EQ(before->call(before->serving(1, 0), "unharmed"), "unharmed");
  const ipc::Report report = supervisor.report();
  ASSERT_EQ(report.clients.size(), 2u);
  EXPECT_EQ(report.clients[0].clientClass, "") << "a client keeps its class";
  EXPECT_EQ(report.clients[1].clientClass, "gold");
  EXPECT_EQ(report.clients[1].share, 3u);
}

TEST(ReloadOfClasses, MoreDedicatedWorkersServeTheClientsOfTheClass) {
  const std::string settings = "workers = 1\n[class.gold]\nprogram = \"gold\"\n";
  SharedSupervisor supervisor({}, settings + "dedicated_workers = 1\n");
  const auto client = supervisor.attachWithPool(2, "gold");
  ASSERT_EQ(workersOf(*client, 2).size(), 1u);
  reload(supervisor, settings + "dedicated_workers = 2\n");
  EXPECT_TRUE(client->waitFor([&] { return workersOf(*client, 2).size() == 2; }));
}

}  // namespace
}  // namespace isopool::tests
