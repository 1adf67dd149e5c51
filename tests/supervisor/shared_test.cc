// SPDX-License-Identifier: BSD-3-Clause
// Several programs on one supervisor: what each of them gets, and that none can harm the others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "base/unix_address.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/operator_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

base::Fd packageOf(char letter, size_t pages = 1) {
  base::Fd object = ipc::createMemoryObject("test", pages * ipc::kPageBytes);
  const std::string page(ipc::kPageBytes, letter);
  for (size_t i = 0; i < pages; ++i) {
    EXPECT_EQ(
        ::pwrite(object.get(), page.data(), page.size(), static_cast<off_t>(i * ipc::kPageBytes)),
        static_cast<ssize_t>(page.size()));
  }
  ipc::sealMemoryObject(object, ipc::Seal::kReadOnly);
  return object;
}

const ipc::ReportedClient* clientNamed(const ipc::Report& report, const std::string& program) {
  for (const auto& client : report.clients) {
    if (client.program == program) return &client;
  }
  return nullptr;
}

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

// ---- limits ----------------------------------------------------------------------------------

TEST(SharedLimit, OfModelsRefusesTheNextAndNamesTheKnob) {
  SharedSupervisor supervisor({"--workers", "1", "--client-models", "1"});
  const auto client = supervisor.attachWithPool(1);
  const base::Fd package = packageOf('x');
  client->send(
      ipc::LoadPackage{
          .package = 1, .bytes = ipc::kPageBytes, .name = "a", .digestLow = 1, .digestHigh = 1},
      {package.get()});
  client->send(
      ipc::LoadPackage{
          .package = 2, .bytes = ipc::kPageBytes, .name = "b", .digestLow = 2, .digestHigh = 2},
      {package.get()});
  ASSERT_TRUE(client->waitFor([&] { return client->held().count(2) != 0; }));
  EXPECT_EQ(client->held().at(1).refusal, "");
  EXPECT_NE(client->held().at(2).refusal.find("limits.models"), std::string::npos);
  EXPECT_EQ(supervisor.report().clients.front().refusals, 1u);
  client->send(ipc::UnloadPackage{1});
  client->send(
      ipc::LoadPackage{
          .package = 3, .bytes = ipc::kPageBytes, .name = "c", .digestLow = 3, .digestHigh = 3},
      {package.get()});
  ASSERT_TRUE(client->waitFor([&] { return client->held().count(3) != 0; }));
  EXPECT_EQ(client->held().at(3).refusal, "");
}

TEST(SharedLimit, OfMemoryRefusesSegmentsPackagesAndRoomForResults) {
  SharedSupervisor supervisor(
      {"--workers", "1", "--spares", "0", "--output-arena", "64KiB", "--client-memory", "1MiB"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  const base::Fd small = ipc::createMemoryObject("test", 512 << 10);
  const base::Fd large = ipc::createMemoryObject("test", 1 << 20);
  client->send(ipc::DeclareInputSegment{1, 512 << 10}, {small.get()});
  client->send(ipc::DeclareInputSegment{2, 1 << 20}, {large.get()});
  std::string known;
  EXPECT_TRUE(client->waitFor([&] {
    known = client->call(worker, "!known").value_or("");
    return known.find("#1!a segment for inputs of 1048576 bytes is refused") == 0;
  })) << known;
  EXPECT_NE(known.find("limits.memory"), std::string::npos);
  const base::Fd package = packageOf('x', 200);
  client->send(ipc::LoadPackage{.package = 1,
                                .bytes = 200 * ipc::kPageBytes,
                                .name = "p",
                                .digestLow = 1,
                                .digestHigh = 1},
               {package.get()});
  ASSERT_TRUE(client->waitFor([&] { return client->held().count(1) != 0; }));
  EXPECT_NE(client->held().at(1).refusal.find("limits.memory"), std::string::npos);
  client->call(worker, "!want 600000");
  ASSERT_TRUE(client->waitFor([&] {
    return client->call(worker, "!segments").value_or("").find("limits.memory") !=
           std::string::npos;
  }));
  EXPECT_EQ(client->call(worker, "unharmed"), "unharmed");
}

TEST(SharedLimit, OfClientsRefusesTheNextOneAndSaysWhy) {
  SharedSupervisor supervisor({"--workers", "1", "--max-clients", "2"});
  const auto first = supervisor.attach();
  const auto second = supervisor.attach();
  ControlClient third(supervisor.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  third.send(hello, {pidfd.get()});
  EXPECT_TRUE(third.waitForEnd());
  EXPECT_NE(third.failure().value_or("").find("max_clients"), std::string::npos);
  EXPECT_EQ(supervisor.report().clients.size(), 2u);  // an operator is still served
}

// Sends Hello and returns the reason with which the supervisor refuses it; empty if it does not.
std::string refusalOf(const SharedSupervisor& supervisor) {
  ControlClient client(supervisor.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  client.send(hello, {pidfd.get()});
  EXPECT_TRUE(client.waitFor([&] { return client.isWelcome() || client.controlEnded(); }));
  return client.failure().value_or("");
}

TEST(SharedLimit, OfClientsOfAUserRefusesTheNextOneAndSaysWhy) {
  SharedSupervisor supervisor({"--workers", "1", "--max-clients-per-user", "2"});
  const auto first = supervisor.attach();
  auto second = supervisor.attach();
  const std::string refusal = refusalOf(supervisor);
  EXPECT_NE(refusal.find("2 programs of user " + std::to_string(::getuid())), std::string::npos)
      << refusal;
  EXPECT_NE(refusal.find("max_clients_per_user"), std::string::npos) << refusal;
  const ipc::Report report = supervisor.report();  // an operator is still served
  EXPECT_EQ(report.clients.size(), 2u);
  EXPECT_EQ(report.refusedPrograms, 1u);
  second.reset();
  ASSERT_TRUE(
      supervisor.waitForReport([](const ipc::Report& each) { return each.clients.size() == 1; }));
  EXPECT_EQ(refusalOf(supervisor), "");
}

TEST(SharedLimit, OfClientsOfAUserIsNotMetByAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  SharedSupervisor supervisor(
      {"--workers", "1", "--max-clients-per-user", "1", "--socket-group", "nogroup"});
  std::filesystem::permissions(supervisor.folder(), std::filesystem::perms::all);
  const auto client = supervisor.attach();
  EXPECT_NE(refusalOf(supervisor), "");
  const pid_t stranger = ::fork();
  ASSERT_GE(stranger, 0);
  if (stranger == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    ::_exit(refusalOf(supervisor).empty() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(stranger, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedLimit, IsReadAgainOnSighup) {
  SharedSupervisor supervisor({"--workers", "1"}, "[limits]\nmodels = 1\n");
  const auto client = supervisor.attachWithPool(1);
  const base::Fd package = packageOf('x');
  const auto load = [&](uint32_t number) {
    client->send(ipc::LoadPackage{.package = number,
                                  .bytes = ipc::kPageBytes,
                                  .name = "m",
                                  .digestLow = number,
                                  .digestHigh = 0},
                 {package.get()});
    EXPECT_TRUE(client->waitFor([&] { return client->held().count(number) != 0; }));
    return client->held().at(number).refusal.empty();
  };
  EXPECT_TRUE(load(1));
  EXPECT_FALSE(load(2));
  supervisor.writeSettings("[limits]\nmodels = 2\n");
  supervisor.signal(SIGHUP);
  ASSERT_TRUE(client->waitFor(
      [&] { return supervisor.log().find("the settings were reloaded") != std::string::npos; }));
  EXPECT_TRUE(load(3));
  supervisor.writeSettings("[limits]\nmodles = 9\n");
  supervisor.signal(SIGHUP);
  ASSERT_TRUE(client->waitFor(
      [&] { return supervisor.log().find("no setting has changed") != std::string::npos; }));
  EXPECT_FALSE(load(4));
}

// ---- recycling -------------------------------------------------------------------------------

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

// ---- calls that take too long ------------------------------------------------------------------

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

// ---- the log's file --------------------------------------------------------------------------

TEST(LogFile, HasTheLogAndIsMadeAgainByAReload) {
  char folder[] = "/tmp/isopool-log-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/isopoold.log";
  const auto has = [](const std::string& file, const std::string& text) {
    std::ifstream stream(file);
    const std::string all((std::istreambuf_iterator<char>(stream)), {});
    return all.find(text) != std::string::npos;
  };
  {
    SharedSupervisor supervisor({"--workers", "1", "--log-level", "info", "--log-file", path});
    const auto client = supervisor.attachWithPool(1, "first");
    EXPECT_TRUE(client->waitFor([&] { return has(path, "(first, pid "); }));
    EXPECT_EQ(supervisor.log(), "");
    ASSERT_EQ(::rename(path.c_str(), (path + ".1").c_str()), 0);
    supervisor.signal(SIGHUP);
    EXPECT_TRUE(client->waitFor([&] { return has(path, "the settings were reloaded"); }));
    const auto next = supervisor.attachWithPool(1, "second");
    EXPECT_TRUE(next->waitFor([&] { return has(path, "(second, pid "); }));
    EXPECT_FALSE(has(path + ".1", "(second, pid "));
  }
  std::filesystem::remove_all(folder);
}

// ---- the end ---------------------------------------------------------------------------------

TEST(Drain, LetsRunningCallsEndAndExitsWithZero) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  client->post(worker, "!spin 300");
  supervisor.signal(SIGTERM);
  ASSERT_TRUE(client->waitFor([&] { return client->drain().has_value(); }));
  client->send(ipc::AcknowledgeDrain{});
  ControlClient late(supervisor.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  late.send(hello, {pidfd.get()});
  ASSERT_TRUE(late.waitForEnd());
  EXPECT_NE(late.failure().value_or("").find("serves no new programs"), std::string::npos);
  EXPECT_EQ(supervisor.report().state, "draining");
  ASSERT_TRUE(client->waitFor([&] { return client->worker(worker).end->completionReady(); }));
  EXPECT_EQ(supervisor.waitForEnd(), 0);
  EXPECT_FALSE(std::filesystem::exists(supervisor.address()));
}

TEST(Drain, EndsAfterDrainTimeoutDespiteARunningCall) {
  SharedSupervisor supervisor({"--workers", "1", "--drain-timeout", "200ms"});
  const auto client = supervisor.attachWithPool(1);
  client->post(client->serving(1, 0), "!hang");
  supervisor.signal(SIGTERM);
  EXPECT_EQ(supervisor.waitForEnd(), 0);
  EXPECT_NE(supervisor.log().find("ISOPOOL_DRAIN_TIMEOUT"), std::string::npos);
}

TEST(Drain, OfASupervisorWhoseProgramsLeaveAtTheSameMomentExitsWithZero) {
  SharedSupervisor supervisor({"--workers", "1"});
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(supervisor.attachWithPool(1));
  // The supervisor is stopped, so that it finds all of this at once.
  const pid_t process = supervisor.supervisorPid();
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  clients.clear();
  ASSERT_EQ(::kill(process, SIGTERM), 0);
  ASSERT_EQ(::kill(process, SIGCONT), 0);
  EXPECT_EQ(supervisor.waitForEnd(), 0);
}

TEST(Drain, OfASupervisorThatHasNotBegunToServeExitsWithZero) {
  SharedSupervisor supervisor;
  supervisor.signal(SIGTERM);
  ASSERT_EQ(supervisor.waitForEnd(), 0);
  // The signal is pending before the program starts.
  supervisor.startAskedToEnd();
  EXPECT_EQ(supervisor.waitForEnd(), 0);
}

TEST(Address, IsServedByOneSupervisorOnly) {
  SharedSupervisor supervisor({"--workers", "1"});
  const std::string command = std::string(ISOPOOLD) + " --listen " + supervisor.address() +
                              " --worker " + PLAIN_WORKER + " --workers 1 2>/dev/null";
  EXPECT_NE(std::system(command.c_str()), 0);
  const auto client = supervisor.attachWithPool(1);
  EXPECT_EQ(client->call(client->serving(1, 0), "undisturbed"), "undisturbed");
}

TEST(Address, IsNotTakenFromAnotherProgram) {
  SharedSupervisor supervisor({"--workers", "1"});
  const std::string path = supervisor.folder() + "/foreign";
  const auto name = base::UnixAddress::ofPath(path).value();
  const base::Fd foreign(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(foreign.get(), name.get(), name.bytes()), 0);
  ASSERT_EQ(::listen(foreign.get(), 16), 0);
  const std::string output = supervisor.folder() + "/output";
  const std::string command = "timeout -s TERM 5 " + std::string(ISOPOOLD) + " --listen " + path +
                              " --worker " + PLAIN_WORKER + " --workers 1 2>" + output;
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  std::ostringstream text;
  text << std::ifstream(output).rdbuf();
  EXPECT_NE(text.str().find("another process serves it"), std::string::npos) << text.str();
  const base::Fd caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(caller.get(), name.get(), name.bytes()), 0);
}

TEST(Address, IsNotRemovedIfASuccessorServesIt) {
  SharedSupervisor supervisor({"--workers", "1"});
  // An operator may clear the folder of a running supervisor.
  std::filesystem::remove(supervisor.address());
  std::filesystem::remove(supervisor.address() + ".lock");
  const auto name = base::UnixAddress::ofPath(supervisor.address()).value();
  const base::Fd successor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(successor.get(), name.get(), name.bytes()), 0);
  supervisor.signal(SIGTERM);
  EXPECT_EQ(supervisor.waitForEnd(), 0);
  EXPECT_TRUE(std::filesystem::exists(supervisor.address()));
}

TEST(Address, IsTakenOverFromADeadSupervisor) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  ::kill(supervisor.supervisorPid(), SIGKILL);
  EXPECT_EQ(supervisor.waitForEnd(), 128 + SIGKILL);
  EXPECT_TRUE(client->waitForEnd());
  EXPECT_TRUE(supervisor.mark().waitUntilNoneIsLeft(milliseconds(1000)));
  ASSERT_TRUE(std::filesystem::exists(supervisor.address()));
  const std::string command = "timeout -s TERM 1 " + std::string(ISOPOOLD) + " --listen " +
                              supervisor.address() + " --worker " + PLAIN_WORKER +
                              " --workers 1 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 124);  // it served until SIGTERM came
}

TEST(Address, WaitsForTheLockOfADyingPredecessor) {
  SharedSupervisor supervisor({"--workers", "1"});
  ::kill(supervisor.pid(), SIGKILL);
  ASSERT_EQ(supervisor.waitForEnd(), 128 + SIGKILL);
  ASSERT_TRUE(supervisor.mark().waitUntilNoneIsLeft(milliseconds(2000)));
  base::Fd lock(::open((supervisor.address() + ".lock").c_str(), O_RDWR | O_CLOEXEC));
  // A process whose memory is freed may still have its descriptors.
  const auto late = Clock::now() + milliseconds(2000);
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    ASSERT_LT(Clock::now(), late);
    ::poll(nullptr, 0, 1);
  }
  bool asked = false;
  std::thread predecessor([&] {
    const auto deadline = Clock::now() + milliseconds(2000);
    while (!asked && Clock::now() < deadline) {
      for (const pid_t pid : supervisor.mark().processes()) {
        asked = asked || descriptorsCalled(pid, ".lock") > 0;
      }
    }
    lock.close();
  });
  supervisor.start();
  predecessor.join();
  EXPECT_TRUE(asked);
  const auto client = supervisor.attachWithPool(1);
  EXPECT_EQ(client->call(client->serving(1, 0), "taken over"), "taken over");
}

TEST(SharedDeath, OfTheGuardianEndsAll) {
  SharedSupervisor supervisor({"--workers", "2"});
  const auto client = supervisor.attachWithPool(2);
  supervisor.signal(SIGKILL);
  EXPECT_TRUE(client->waitForEnd(milliseconds(1000)));
  supervisor.waitForEnd();
  EXPECT_TRUE(supervisor.mark().waitUntilNoneIsLeft(milliseconds(1000)));
}

TEST(SharedDeath, OfTheZygoteIsNotNoticedByCallers) {
  SharedSupervisor supervisor({"--workers", "2"});
  const auto client = supervisor.attachWithPool(2);
  const pid_t zygote = supervisor.report().zygoteProcessId;
  ::kill(zygote, SIGKILL);
  for (uint32_t slot = 0; slot < 2; ++slot) {
    EXPECT_EQ(client->call(client->serving(1, slot), "x"), "x");
  }
  EXPECT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
    return report.zygoteRestarts == 1 && report.zygoteProcessId != zygote &&
           report.zygoteProcessId != 0;
  }));
  const uint64_t worker = client->serving(1, 0);
  client->killAndReport(worker);
  EXPECT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
}

TEST(SharedDeath, OfAProgramUnderLoadLeavesNothing) {
  SharedSupervisor supervisor({"--workers", "2", "--grace", "50ms"});
  const pid_t program = ::fork();
  ASSERT_GE(program, 0);
  if (program == 0) {
    const auto client = supervisor.attachWithPool(2, "doomed");
    for (;;) client->call(client->serving(1, 0), "load");
  }
  ASSERT_TRUE(supervisor.waitForReport([](const ipc::Report& report) {
    const auto* doomed = clientNamed(report, "doomed");
    return doomed != nullptr && doomed->completedCalls > 100;
  }));
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
  EXPECT_TRUE(supervisor.waitForReport(
      [](const ipc::Report& report) {
        return report.clients.empty() &&
               std::all_of(report.workers.begin(), report.workers.end(),
                           [](const auto& each) { return each.clients == 0; });
      },
      milliseconds(1000)));
  EXPECT_EQ(supervisor.report().restarts, 0u);
}

// ---- peers that must be refused --------------------------------------------------------------

class SharedGarbage : public testing::Test {
 protected:
  ~SharedGarbage() override {
    // After each test, the other program and the supervisor are as before.
    EXPECT_EQ(other_->call(other_->serving(1, 0), "unharmed"), "unharmed");
    EXPECT_EQ(supervisor_.report().clients.size(), 1u);
    EXPECT_EQ(supervisor_.report().restarts, 0u);
  }
  size_t timesLogged(const std::string& text) const {
    const std::string log = supervisor_.log();
    size_t times = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++times;
    return times;
  }

  SharedSupervisor supervisor_{{"--workers", "1", "--handshake-timeout", "300ms"}};
  std::unique_ptr<ControlClient> other_ = supervisor_.attachWithPool(1, "other");
};

TEST_F(SharedGarbage, BytesThatAreNoFrame) {
  ControlClient stranger(supervisor_.connect());
  stranger.sendBytes("GET / HTTP/1.1\r\nHost: isopool\r\n\r\n");
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_EQ(timesLogged(" is refused: "), 1u);
}

TEST_F(SharedGarbage, HalfAMessageAndThenNothing) {
  ControlClient stranger(supervisor_.connect());
  msgpack::sbuffer body;
  msgpack::pack(body, ipc::Hello{});
  const ipc::OutgoingFrame frame =
      ipc::encodeFrame(ipc::MessageType::kHello, body.data(), body.size(), 1);
  stranger.sendBytes(std::string(frame.bytes.data(), frame.bytes.size() / 2));
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_NE(stranger.failure().value_or("").find("ISOPOOL_HANDSHAKE_TIMEOUT"), std::string::npos);
  EXPECT_EQ(timesLogged(" is refused: "), 1u);
}

TEST_F(SharedGarbage, NothingAtAll) {
  ControlClient stranger(supervisor_.connect());
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_NE(stranger.failure().value_or("").find("300 ms"), std::string::npos);
}

TEST_F(SharedGarbage, TenMegabytesOfNesting) {
  ControlClient stranger(supervisor_.connect());
  // A body of the largest size that a frame may have, all of it nested arrays; and a larger one.
  const std::string nesting(ipc::kMaxBodyBytes, '\x91');
  ipc::OutgoingFrame frame =
      ipc::encodeFrame(ipc::MessageType::kHello, nesting.data(), nesting.size(), 0);
  size_t sent = 0;
  while (sent < frame.bytes.size()) {
    const ssize_t written =
        ::write(stranger.controlFd(), frame.bytes.data() + sent, frame.bytes.size() - sent);
    if (written > 0) sent += static_cast<size_t>(written);
    if (written < 0 && errno != EAGAIN) break;
  }
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_THROW(ipc::encodeFrame(ipc::MessageType::kHello, nesting.data(), 10u << 20, 0),
               ipc::ProtocolError);
}

TEST_F(SharedGarbage, DescriptorsThatItShouldNotSend) {
  ControlClient stranger(supervisor_.connect());
  const base::Fd object = ipc::createMemoryObject("isopool-test-stray", ipc::kPageBytes);
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  stranger.send(hello, {object.get()});
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_NE(stranger.failure().value_or("").find("not a pidfd of the client"), std::string::npos);
  ControlClient another(supervisor_.connect());
  another.send(hello, {object.get(), object.get(), object.get(), object.get()});
  EXPECT_TRUE(another.waitForEnd());
  EXPECT_EQ(descriptorsCalled(supervisor_.supervisorPid(), "isopool-test-stray"), 0u);
}

TEST_F(SharedGarbage, APidfdOfAnotherProcess) {
  ControlClient stranger(supervisor_.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, supervisor_.pid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  stranger.send(hello, {pidfd.get()});
  EXPECT_TRUE(stranger.waitForEnd());
}

TEST_F(SharedGarbage, AnOlderClientReceivesBothVersions) {
  ControlClient stranger(supervisor_.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  msgpack::sbuffer body;
  msgpack::packer<msgpack::sbuffer>(body).pack_array(3).pack(1).pack(1).pack(::getpid());
  const ipc::OutgoingFrame frame =
      ipc::encodeFrame(ipc::MessageType::kHello, body.data(), body.size(), 0);
  stranger.sendBytes(std::string(frame.bytes.data(), frame.bytes.size()));
  EXPECT_TRUE(stranger.waitForEnd());
  const std::string versions = "protocol 1 and " + std::to_string(ipc::kOldestProtocolVersion) +
                               " to " + std::to_string(ipc::kProtocolVersion);
  EXPECT_NE(stranger.failure().value_or("").find(versions), std::string::npos)
      << stranger.failure().value_or("");
}

TEST_F(SharedGarbage, AProgramsRequestFromAnOperator) {
  ControlClient stranger(supervisor_.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.role = static_cast<uint32_t>(ipc::ClientRole::kOperator);
  stranger.send(hello, {pidfd.get()});
  stranger.send(ipc::OpenPool{1, 1});
  EXPECT_TRUE(stranger.waitForEnd());
}

TEST(SharedPeer, OfAnotherUserIsRefusedUnlessItsGroupIsLetIn) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  SharedSupervisor supervisor({"--workers", "1"});
  // The file modes allow every user, so that the supervisor itself has to refuse.
  std::filesystem::permissions(supervisor.folder(), std::filesystem::perms::all);
  std::filesystem::permissions(supervisor.address(), std::filesystem::perms::all);
  const pid_t stranger = ::fork();
  ASSERT_GE(stranger, 0);
  if (stranger == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    ControlClient client(supervisor.connect());
    const bool refused = client.waitForEnd() && client.failure().value_or("").find(
                                                    "user 65534 is neither") != std::string::npos;
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ::waitpid(stranger, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace isopool::tests
