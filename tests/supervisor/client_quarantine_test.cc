// SPDX-License-Identifier: BSD-3-Clause
// A program whose code ends workers, beside programs that must not notice it; and slots whose
// workers die without one.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

const std::vector<std::string> kSmall{"--workers",       "1", "--spares",     "1",
                                      "--restart-limit", "3", "--quarantine", "60s"};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Calls that end their worker, until the program is refused. Returns false if it never is.
bool crashUntilRefused(ControlClient& client) {
  return client.waitFor(
      [&, last = uint64_t{0}]() mutable {
        const uint64_t worker = client.serving(1, 0);
        if (worker != last && client.worker(worker).end != nullptr) {
          last = worker;
          client.post(worker, "!exit 3");
        }
        return !client.quarantines().empty();
      },
      milliseconds(20'000));
}

TEST(ClientQuarantine, IsOfTheProgramWhoseCallsEndWorkersAndNotOfTheSlot) {
  SharedSupervisor supervisor(kSmall);
  const auto other = supervisor.attachWithPool(1, "other");
  const auto crasher = supervisor.attachWithPool(1, "crasher");
  ASSERT_TRUE(crashUntilRefused(*crasher)) << supervisor.log();
  const ipc::SlotQuarantined& told = crasher->quarantines().front();
  EXPECT_TRUE(has(told.text, "this program gets no further worker for ")) << told.text;
  EXPECT_TRUE(has(told.text,
                  "its code ended 3 workers in a row before it had completed a call "
                  "there, the last by exit code 3"))
      << told.text;
  EXPECT_EQ(told.deaths, 3u);
  EXPECT_GT(told.retryAfterMilliseconds, 50'000u);

  EXPECT_TRUE(other->waitFor([&] {
    const uint64_t worker = other->serving(1, 0);
    return !other->worker(worker).died && other->call(worker, "served") == "served";
  }));
  EXPECT_TRUE(other->quarantines().empty());
  const auto late = supervisor.attachWithPool(1, "late");
  EXPECT_EQ(late->call(late->serving(1, 0), "served"), "served");

  const ipc::Report report = supervisor.report();
  EXPECT_EQ(report.slots.at(0).quarantineMilliseconds, 0u);
  EXPECT_EQ(report.groups.at(0).quarantines, 0u);
  EXPECT_EQ(report.groups.at(0).clientQuarantines, 1u);
  EXPECT_EQ(report.groups.at(0).quarantinedClients, 1u);
  const ipc::ReportedClient* entry = clientNamed(report, "crasher");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->state, "quarantined");
  EXPECT_GT(entry->quarantineMilliseconds, 50'000u);
  EXPECT_TRUE(has(entry->quarantine, "exit code 3")) << entry->quarantine;
  EXPECT_EQ(clientNamed(report, "other")->quarantineMilliseconds, 0u);
  EXPECT_TRUE(has(report.slots.at(0).lastDeath, "while it ran code of client "))
      << report.slots.at(0).lastDeath;
  EXPECT_TRUE(has(supervisor.log(), "(crasher, pid ")) << supervisor.log();
  EXPECT_FALSE(has(supervisor.log(), "stays empty")) << supervisor.log();
}

TEST(ClientQuarantine, EndsAndTheProgramIsServedAgain) {
  SharedSupervisor supervisor(
      {"--workers", "1", "--spares", "1", "--restart-limit", "2", "--quarantine", "300ms"});
  const auto crasher = supervisor.attachWithPool(1, "crasher");
  ASSERT_TRUE(crashUntilRefused(*crasher)) << supervisor.log();
  EXPECT_TRUE(crasher->waitFor([&] {
    const uint64_t worker = crasher->serving(1, 0);
    return !crasher->worker(worker).died && crasher->call(worker, "x") == "x";
  }));
  EXPECT_TRUE(supervisor.waitForReport([](const ipc::Report& report) {
    return clientNamed(report, "crasher")->state == "attached" &&
           report.groups.at(0).quarantinedClients == 0;
  }));
}

TEST(ClientQuarantine, IsNotForAProgramThatCompletesCallsInBetween) {
  SharedSupervisor supervisor(kSmall);
  const auto client = supervisor.attachWithPool(1);
  for (int i = 0; i < 6; ++i) {
    const uint64_t worker = client->serving(1, 0);
    ASSERT_EQ(client->call(worker, "x"), "x");
    client->post(worker, "!exit 3");
    ASSERT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
  }
  EXPECT_TRUE(client->quarantines().empty());
}

// Ends workers with calls of `caller`, each in a worker where a call of `other` has run, until the
// caller is refused or has ended as many workers as three limits of kSmall. Returns true if it is
// refused.
bool isRefusedFor(const std::string& command, ControlClient& caller, ControlClient& other) {
  for (int i = 0; i < 9; ++i) {
    const auto serves = [](ControlClient& client) {
      const uint64_t worker = client.serving(1, 0);
      return worker != 0 && !client.worker(worker).died;
    };
    const bool served =
        caller.waitFor([&] { return !caller.quarantines().empty() || serves(caller); });
    if (!caller.quarantines().empty()) return true;
    const uint64_t worker = caller.serving(1, 0);
    if (!served || !other.waitFor([&] { return other.serving(1, 0) == worker; })) {
      ADD_FAILURE() << "no worker serves both programs";
      return false;
    }
    EXPECT_EQ(other.call(worker, "x"), "x");
    caller.post(worker, command);
    EXPECT_TRUE(caller.waitFor(
        [&] { return caller.worker(worker).died || !caller.quarantines().empty(); }));
  }
  return !caller.quarantines().empty();
}

// The other program may have left a thread that ended the worker.
TEST(ClientQuarantine, IsNotForDeathsThatMayBeOfAnotherProgramsCode) {
  for (const char* command : {"!exit 3", "!crash thread"}) {
    SharedSupervisor supervisor(kSmall);
    const auto caller = supervisor.attachWithPool(1, "caller");
    const auto other = supervisor.attachWithPool(1, "other");
    EXPECT_FALSE(isRefusedFor(command, *caller, *other)) << supervisor.log();
    EXPECT_TRUE(other->quarantines().empty());
    EXPECT_EQ(supervisor.report().groups.at(0).clientQuarantines, 0u);
    EXPECT_TRUE(has(supervisor.log(),
                    "; code of other programs had run in it, too, so it may have been theirs"))
        << supervisor.log();
  }
}

TEST(ClientQuarantine, IsForCrashesInTheThreadOfACallAlsoWhereAnotherProgramsCodeRan) {
  SharedSupervisor supervisor(kSmall);
  const auto caller = supervisor.attachWithPool(1, "caller");
  const auto other = supervisor.attachWithPool(1, "other");
  EXPECT_TRUE(isRefusedFor("!crash call", *caller, *other)) << supervisor.log();
  EXPECT_TRUE(other->quarantines().empty());
  EXPECT_FALSE(has(supervisor.log(), "may have been theirs")) << supervisor.log();
}

TEST(ClientQuarantine, IsNotForAKillFromOutsideOfAnIdleWorker) {
  SharedSupervisor supervisor({"--workers", "1", "--spares", "1", "--restart-limit", "2"});
  const auto victim = supervisor.attachWithPool(1);
  for (int i = 0; i < 4; ++i) {
    const uint64_t worker = victim->serving(1, 0);
    ASSERT_EQ(victim->call(worker, "x"), "x");
    ASSERT_EQ(::kill(victim->worker(worker).introduction.processId, SIGKILL), 0);
    ASSERT_TRUE(victim->waitFor([&] { return victim->serving(1, 0) != worker; }));
  }
  EXPECT_TRUE(victim->quarantines().empty());
  EXPECT_EQ(supervisor.report().groups.at(0).clientQuarantines, 0u);
}

// A worker that dies while no client's code has run counts against its slot.
class SlotOfSeveral : public testing::Test {
 protected:
  /// The slot that serves the client.
  int32_t slotOf(ControlClient& client) const {
    for (const ipc::ReportedWorker& each : supervisor_.report().workers) {
      if (each.epoch == client.serving(1, 0)) return each.slot;
    }
    return -1;
  }
  static void killWorkerOf(ControlClient& client) {
    ASSERT_EQ(::kill(client.worker(client.serving(1, 0)).introduction.processId, SIGKILL), 0);
  }
  bool waitForQuarantine(uint64_t slots) const {
    return supervisor_.waitForReport(
        [&](const ipc::Report& report) { return report.groups.at(0).quarantinedSlots == slots; });
  }

  SharedSupervisor supervisor_{
      {"--workers", "2", "--spares", "0", "--restart-limit", "1", "--quarantine", "60s"}};
};

TEST_F(SlotOfSeveral, IfInQuarantineIsLeftOutByNewPrograms) {
  const auto first = supervisor_.attachWithPool(1, "first");
  killWorkerOf(*first);
  ASSERT_TRUE(waitForQuarantine(1));
  // Each of its slots has a worker: that of the slot which serves.
  const auto late = supervisor_.attachWithPool(2, "late");
  EXPECT_EQ(late->serving(1, 0), late->serving(1, 1));
  EXPECT_EQ(late->call(late->serving(1, 0), "served"), "served");
  const auto single = supervisor_.attachWithPool(1, "single");
  EXPECT_EQ(single->serving(1, 0), late->serving(1, 0));
  EXPECT_TRUE(late->quarantines().empty());
}

TEST_F(SlotOfSeveral, IfInQuarantineIsLeftByProgramsThatCalledIt) {
  const auto one = supervisor_.attachWithPool(1, "one");
  const auto two = supervisor_.attachWithPool(1, "two");
  ASSERT_NE(slotOf(*one), slotOf(*two));
  killWorkerOf(*one);
  ASSERT_TRUE(one->waitFor([&] { return one->serving(1, 0) == two->serving(1, 0); }));
  EXPECT_EQ(one->call(one->serving(1, 0), "served"), "served");
  EXPECT_TRUE(one->quarantines().empty());
}

TEST_F(SlotOfSeveral, InQuarantineWithAllOthersRefusesPrograms) {
  const auto one = supervisor_.attachWithPool(1, "one");
  const auto two = supervisor_.attachWithPool(1, "two");
  killWorkerOf(*one);
  ASSERT_TRUE(one->waitFor([&] { return one->serving(1, 0) == two->serving(1, 0); }));
  killWorkerOf(*two);
  ASSERT_TRUE(waitForQuarantine(2));
  EXPECT_TRUE(one->waitFor([&] { return !one->quarantines().empty(); }));
  const auto late = supervisor_.attach("late");
  late->send(ipc::OpenPool{1, 2});
  ASSERT_TRUE(late->waitFor([&] { return late->quarantines().size() == 2; }));
  EXPECT_TRUE(has(late->quarantines().front().text, "ISOPOOL_QUARANTINE"));
}

TEST(SlotQuarantine, WhenItIsOverGivesProgramsTheirSlotBack) {
  SharedSupervisor supervisor(
      {"--workers", "2", "--spares", "0", "--restart-limit", "1", "--quarantine", "300ms"});
  const auto client = supervisor.attachWithPool(2);
  const uint64_t worker = client->serving(1, 0);
  ASSERT_EQ(::kill(client->worker(worker).introduction.processId, SIGKILL), 0);
  ASSERT_TRUE(client->waitFor([&] { return client->serving(1, 0) == client->serving(1, 1); }));
  EXPECT_TRUE(client->waitFor([&] { return client->serving(1, 0) != client->serving(1, 1); }));
  for (const uint32_t slot : {0u, 1u}) {
    EXPECT_EQ(client->call(client->serving(1, slot), "served"), "served");
  }
  EXPECT_TRUE(client->quarantines().empty());
}

}  // namespace
}  // namespace isopool::tests
