// SPDX-License-Identifier: BSD-3-Clause
// Several programs on one supervisor: what each of them gets, and that none can harm the others.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ipc/control/client_messages.h"
#include "ipc/control/operator_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

size_t serving(const ipc::Report& report) {
  return static_cast<size_t>(
      std::count_if(report.workers.begin(), report.workers.end(),
                    [](const auto& worker) { return worker.state == "serving"; }));
}

TEST(Shared, ProgramsCallTheSameWorkersAndEachGetsItsOwnAnswers) {
  SharedSupervisor supervisor({"--workers", "2"});
  const auto first = supervisor.attachWithPool(2, "first");
  const auto second = supervisor.attachWithPool(2, "second");
  EXPECT_TRUE(first->welcome().shared);
  for (uint32_t slot = 0; slot < 2; ++slot) {
    EXPECT_EQ(first->call(first->serving(1, slot), "one"), "one");
    EXPECT_EQ(second->call(second->serving(1, slot), "two"), "two");
  }
  EXPECT_EQ(std::min(first->serving(1, 0), first->serving(1, 1)),
            std::min(second->serving(1, 0), second->serving(1, 1)));
  const ipc::Report report = supervisor.report();
  ASSERT_EQ(report.clients.size(), 2u);
  EXPECT_EQ(clientNamed(report, "first")->processId, ::getpid());
  EXPECT_EQ(clientNamed(report, "second")->completedCalls, 2u);
  EXPECT_EQ(serving(report), 2u);
}

TEST(Shared, APoolOfMoreSlotsThanWorkersUsesEachWorkerSeveralTimes) {
  SharedSupervisor supervisor({"--workers", "2"});
  const auto client = supervisor.attachWithPool(5);
  std::set<uint64_t> used;
  for (uint32_t slot = 0; slot < 5; ++slot) {
    used.insert(client->serving(1, slot));
    EXPECT_EQ(client->call(client->serving(1, slot), "x"), "x");
  }
  EXPECT_EQ(used.size(), 2u);
}

TEST(Shared, SmallPoolsAreSpreadOverTheWorkers) {
  SharedSupervisor supervisor({"--workers", "3"});
  std::vector<std::unique_ptr<ControlClient>> clients;
  std::set<uint64_t> used;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(supervisor.attachWithPool(1));
    used.insert(clients.back()->serving(1, 0));
  }
  EXPECT_EQ(used.size(), 3u);
}

TEST(Shared, AClassWithWorkersOfItsOwnCallsOnlyThose) {
  SharedSupervisor supervisor(
      {"--workers", "1", "--spares", "0"},
      "[class.trading]\nprogram = \"trader\"\ndedicated_workers = 2\nshare = 4\n");
  const auto trader = supervisor.attachWithPool(2, "trader");
  const auto other = supervisor.attachWithPool(2, "other");
  EXPECT_NE(trader->serving(1, 0), other->serving(1, 0));
  EXPECT_NE(trader->serving(1, 1), other->serving(1, 0));
  EXPECT_EQ(trader->call(trader->serving(1, 1), "mine"), "mine");
  const ipc::Report report = supervisor.report();
  EXPECT_EQ(clientNamed(report, "trader")->clientClass, "trading");
  EXPECT_EQ(clientNamed(report, "trader")->share, 4u);
  EXPECT_EQ(clientNamed(report, "other")->clientClass, "");
}

TEST(Shared, WhatAProgramLeavesBehindIsGoneAndTheOthersGoOn) {
  SharedSupervisor supervisor({"--workers", "1"});
  auto leaving = supervisor.attachWithPool(1, "leaving");
  const auto staying = supervisor.attachWithPool(1, "staying");
  const uint64_t worker = staying->serving(1, 0);
  ASSERT_EQ(leaving->serving(1, 0), worker);
  ASSERT_EQ(leaving->call(worker, "x"), "x");
  leaving->closeControl();
  EXPECT_TRUE(supervisor.waitForReport(
      [](const ipc::Report& report) {
        return report.clients.size() == 1 &&
               std::all_of(report.workers.begin(), report.workers.end(),
                           [](const auto& each) { return each.clients == 1; });
      },
      milliseconds(1000)));
  EXPECT_EQ(staying->call(worker, "still the same worker"), "still the same worker");
  EXPECT_FALSE(staying->worker(worker).died);
}

TEST(Shared, ClosedPoolIsNotifiedOfItsClosedChannels) {
  SharedSupervisor supervisor({"--workers", "2"});
  const auto client = supervisor.attachWithPool(2);
  client->send(ipc::ClosePool{1});
  // The channels to the two workers, and to the spare if it has been introduced by then.
  EXPECT_TRUE(
      client->waitFor([&] { return client->closedChannels().size() == client->workers().size(); }));
  EXPECT_GE(client->workers().size(), 2u);
}

TEST(Shared, ARunningCallOfADeadProgramGetsTheGracePeriodAndNoMore) {
  SharedSupervisor supervisor({"--workers", "1", "--grace", "100ms"});
  auto dying = supervisor.attachWithPool(1, "dying");
  const auto staying = supervisor.attachWithPool(1, "staying");
  const uint64_t worker = staying->serving(1, 0);
  dying->post(worker, "!hang");
  ASSERT_TRUE(supervisor.waitForReport([](const ipc::Report& report) {
    return report.clients.size() == 2 && clientNamed(report, "dying")->runningCalls == 1;
  }));
  const auto left = Clock::now();
  dying->closeControl();
  ASSERT_TRUE(staying->waitFor([&] { return staying->serving(1, 0) != worker; }));
  EXPECT_GE(Clock::now() - left, milliseconds(90));
  EXPECT_EQ(staying->call(staying->serving(1, 0), "back"), "back");
  // The supervisor logs after it has sent the message to the clients.
  EXPECT_TRUE(staying->waitFor([&] {
    return supervisor.log().find(
               "which has left, continued for more than 100 ms (ISOPOOL_GRACE)") !=
           std::string::npos;
  })) << supervisor.log();
}

TEST(Shared, AnOverdueCallIsKilledAfterTheGracePeriodUnlessItHasEnded) {
  SharedSupervisor supervisor({"--workers", "1", "--grace", "100ms"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  ASSERT_EQ(client->call(worker, "quick"), "quick");
  client->send(ipc::ReportOverdue{worker, 1});
  EXPECT_FALSE(client->waitFor([&] { return client->serving(1, 0) != worker; }, milliseconds(300)));
  client->post(worker, "!hang");
  client->send(ipc::ReportOverdue{worker, 2});
  EXPECT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
  EXPECT_EQ(supervisor.report().clients.front().overdueCalls, 2u);
}

TEST(Shared, OverdueCallIsKilledSoonAfterAnotherReport) {
  SharedSupervisor supervisor({"--workers", "1", "--grace", "500ms"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  ASSERT_EQ(client->call(worker, "quick"), "quick");
  client->send(ipc::ReportOverdue{worker, 1});
  client->post(worker, "!hang");
  ASSERT_TRUE(client->waitFor([&] { return client->worker(worker).end->hasStarted(2); }));
  client->send(ipc::ReportOverdue{worker, 2});
  EXPECT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
}

TEST(Shared, ADyingWorkerIsReplacedForEveryProgram) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto first = supervisor.attachWithPool(1, "first");
  const auto second = supervisor.attachWithPool(1, "second");
  const uint64_t worker = first->serving(1, 0);
  ASSERT_NE(first->waitForSpare(), 0u);
  ASSERT_NE(second->waitForSpare(), 0u);
  first->killAndReport(worker);
  for (const auto* client : {&first, &second}) {
    ASSERT_TRUE((*client)->waitFor([&] { return (*client)->serving(1, 0) != worker; }));
    EXPECT_EQ((*client)->call((*client)->serving(1, 0), "again"), "again");
    ASSERT_TRUE((*client)->waitFor([&] { return (*client)->worker(worker).died.has_value(); }));
  }
  const ipc::Report report = supervisor.report();
  EXPECT_EQ(report.restarts, 1u);
  ASSERT_EQ(report.slots.size(), 1u);
  EXPECT_EQ(report.slots.front().restarts, 1u);
  EXPECT_NE(report.slots.front().lastDeath.find("SIGKILL (killed from outside"), std::string::npos)
      << report.slots.front().lastDeath;
}

TEST(Shared, NewProgramIsNotifiedOfAQuarantine) {
  SharedSupervisor supervisor({"--workers", "1", "--spares", "0", "--restart-limit", "2"});
  const auto first = supervisor.attachWithPool(1, "first");
  supervisor.setMode("worker-exits");
  first->killAndReport(first->serving(1, 0));
  ASSERT_TRUE(first->waitFor([&] { return !first->quarantines().empty(); }));
  const auto second = supervisor.attach("second");
  second->send(ipc::OpenPool{1, 1});
  ASSERT_TRUE(second->waitFor([&] { return !second->quarantines().empty(); }));
  EXPECT_NE(second->quarantines().front().text.find("ISOPOOL_QUARANTINE"), std::string::npos);
}

TEST(Shared, UnmappedChannelDelaysNoOtherProgram) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto stopped = supervisor.attach("stopped");
  stopped->answersIntroductions = false;
  stopped->send(ipc::OpenPool{1, 1});
  ASSERT_TRUE(stopped->waitFor([&] { return !stopped->workers().empty(); }));
  const auto other = supervisor.attachWithPool(1, "other");
  const uint64_t worker = other->serving(1, 0);
  other->killAndReport(worker);
  ASSERT_TRUE(other->waitFor([&] { return other->serving(1, 0) != worker; }));
  EXPECT_EQ(other->call(other->serving(1, 0), "fine"), "fine");
}

TEST(Shared, AThousandAttachmentsLeaveNothingBehind) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto keeper = supervisor.attachWithPool(1, "keeper");
  const uint64_t worker = keeper->serving(1, 0);
  const pid_t workerPid = keeper->worker(worker).introduction.processId;
  const pid_t supervisorPid = supervisor.supervisorPid();
  const auto cycle = [&] {
    auto client = supervisor.attachWithPool(1, "cycle");
    ASSERT_EQ(client->call(client->serving(1, 0), "x"), "x");
  };
  const auto settled = [&] {
    return supervisor.waitForReport([](const ipc::Report& report) {
      return report.clients.size() == 1 &&
             std::all_of(report.workers.begin(), report.workers.end(),
                         [](const auto& each) { return each.clients == 1; });
    });
  };
  cycle();
  ASSERT_TRUE(settled());
  const size_t workerDescriptors = openDescriptors(workerPid);
  const size_t supervisorDescriptors = openDescriptors(supervisorPid);
  const uint64_t sharedBytes = supervisor.report().sharedBytes;
  for (int i = 0; i < 1000 && !testing::Test::HasFailure(); ++i) cycle();
  ASSERT_TRUE(settled());
  EXPECT_LE(openDescriptors(workerPid), workerDescriptors);
  // The number of memory sets in stock varies.
  EXPECT_LE(openDescriptors(supervisorPid), supervisorDescriptors + 9);
  EXPECT_EQ(supervisor.report().sharedBytes, sharedBytes);
  EXPECT_EQ(keeper->call(worker, "never disturbed"), "never disturbed");
}

TEST(Shared, TwoHundredProgramsAtOnceAreAllServed) {
  SharedSupervisor supervisor({"--workers", "2", "--output-arena", "64KiB"});
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(supervisor.attach());
    clients.back()->send(ipc::OpenPool{1, 2});
  }
  for (int i = 0; i < 200; ++i) {
    ControlClient& client = *clients[i];
    ASSERT_TRUE(client.waitForPool(1, 2)) << i;
    EXPECT_EQ(client.call(client.serving(1, i % 2), std::to_string(i)), std::to_string(i));
  }
  EXPECT_EQ(supervisor.report().clients.size(), 200u);
}

// ---- packages --------------------------------------------------------------------------------

TEST(SharedPackage, IsHeldOnceForTwoPrograms) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto first = supervisor.attachWithPool(1, "first");
  const auto second = supervisor.attachWithPool(1, "second");
  const base::Fd own = packageOf('p', 64);
  const base::Fd same = packageOf('p', 64);
  const uint64_t bytes = 64 * ipc::kPageBytes;
  first->send(
      ipc::LoadPackage{
          .package = 7, .bytes = bytes, .name = "model.pt", .digestLow = 1, .digestHigh = 2},
      {own.get()});
  ASSERT_TRUE(first->waitFor([&] { return first->held().count(7) != 0; }));
  EXPECT_EQ(first->offered().count(7), 0u);
  second->send(
      ipc::LoadPackage{
          .package = 9, .bytes = bytes, .name = "copy.pt", .digestLow = 1, .digestHigh = 2},
      {same.get()});
  ASSERT_TRUE(second->waitFor([&] { return second->offered().count(9) != 0; }));
  EXPECT_TRUE(ipc::memoryObjectHas(second->offered()[9], bytes, ipc::Seal::kReadOnly));
  second->send(ipc::ConfirmPackage{.package = 9, .same = true});
  EXPECT_TRUE(second->waitFor(
      [&] { return second->call(second->serving(1, 0), "!known") == "+model.pt+copy.pt"; }));
  const ipc::Report report = supervisor.report();
  ASSERT_EQ(report.models.size(), 1u);
  EXPECT_EQ(report.models.front().clients.size(), 2u);
  EXPECT_EQ(report.models.front().bytes, bytes);
  // A package that another program has loaded stays.
  first->closeControl();
  EXPECT_TRUE(supervisor.waitForReport([](const ipc::Report& later) {
    return later.models.size() == 1 && later.models.front().clients.size() == 1;
  }));
}

TEST(SharedPackage, WithAnEqualDigestButOtherContentIsHeldToo) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto first = supervisor.attachWithPool(1);
  const auto second = supervisor.attachWithPool(1);
  const base::Fd one = packageOf('1');
  const base::Fd two = packageOf('2');
  first->send(
      ipc::LoadPackage{
          .package = 1, .bytes = ipc::kPageBytes, .name = "one", .digestLow = 5, .digestHigh = 5},
      {one.get()});
  ASSERT_TRUE(first->waitFor([&] { return first->held().count(1) != 0; }));
  second->send(
      ipc::LoadPackage{
          .package = 1, .bytes = ipc::kPageBytes, .name = "two", .digestLow = 5, .digestHigh = 5},
      {two.get()});
  ASSERT_TRUE(second->waitFor([&] { return second->offered().count(1) != 0; }));
  second->send(ipc::ConfirmPackage{.package = 1, .same = false});
  EXPECT_TRUE(supervisor.waitForReport(
      [](const ipc::Report& report) { return report.models.size() == 2; }));
}

TEST(SharedPackage, OfAMovedObjectHasNoDigest) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  const base::Fd object = ipc::createMemoryObject("object", ipc::kPageBytes);
  client->send(
      ipc::LoadPackage{
          .package = 1, .bytes = ipc::kPageBytes, .name = "app.py:make", .shared = true},
      {object.get()});
  EXPECT_TRUE(supervisor.waitForReport([](const ipc::Report& report) {
    return report.models.size() == 1 && report.models.front().name == "app.py:make" &&
           report.models.front().digest.empty();
  }));
}

TEST(SharedPackage, ThousandsWithLongNamesShortenTheReport) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  const base::Fd package = packageOf('x');
  for (uint32_t number = 1; number <= 5000; ++number) {
    client->send(ipc::LoadPackage{.package = number,
                                  .bytes = ipc::kPageBytes,
                                  .name = std::string(2000, 'n'),
                                  .digestLow = number,
                                  .digestHigh = 0},
                 {package.get()});
    if (number % 50 == 0) {
      ASSERT_TRUE(client->waitFor([&] { return client->held().count(number) != 0; }));
    }
  }
  const ipc::Report report = supervisor.report();
  EXPECT_FALSE(report.complete);
  EXPECT_GT(report.models.size(), 100u);
  EXPECT_EQ(report.clients.front().models, 5000u);
}

}  // namespace
}  // namespace isopool::tests
