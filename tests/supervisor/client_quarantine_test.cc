// SPDX-License-Identifier: BSD-3-Clause
// A program whose code ends workers, beside programs that must not notice it; and slots whose
// workers die without one.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <set>

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

/// Two programs on two workers. The code of one ends workers by a thread that is not the one of a
/// call, so that the death does not show whose code it was.
class TwoPrograms : public testing::Test {
 protected:
  explicit TwoPrograms(const std::string& quarantine = "60s")
      : supervisor_({"--workers", "2", "--spares", "1", "--quarantine", quarantine}),
        crasher_(supervisor_.attachWithPool(2, "crasher")),
        innocent_(supervisor_.attachWithPool(2, "innocent")) {}

  static bool serves(ControlClient& client, uint64_t worker) {
    return worker != 0 && client.worker(worker).end != nullptr && !client.worker(worker).died;
  }
  static std::set<uint64_t> workersOf(ControlClient& client) {
    return {client.serving(1, 0), client.serving(1, 1)};
  }
  std::string stateOf(const std::string& name) {
    return clientNamed(supervisor_.report(), name)->state;
  }
  /// Completes a call of the crasher in its worker, then the crasher ends it. `together`: a call of
  /// the innocent program has run there, too.
  void crashOnce(bool together = false) {
    const uint64_t worker = crasher_->serving(1, 0);
    ASSERT_TRUE(crasher_->waitFor([&] { return serves(*crasher_, worker); }));
    ASSERT_EQ(crasher_->call(worker, "x"), "x");
    if (together) {
      ASSERT_TRUE(innocent_->waitFor([&] { return workersOf(*innocent_).count(worker) != 0; }));
      ASSERT_EQ(innocent_->call(worker, "y"), "y");
    }
    crasher_->post(worker, "!crash thread");
    ASSERT_TRUE(crasher_->waitFor([&] {
      return crasher_->worker(worker).died && crasher_->serving(1, 0) != worker;
    })) << supervisor_.log();
  }
  void crashUntilApart() {
    for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(crashOnce(/*together=*/true));
    // In a worker that was started before, code of both may have run.
    for (int i = 0; i < 5 && stateOf("innocent") != "attached"; ++i) crashOnce();
    EXPECT_EQ(stateOf("innocent"), "attached") << supervisor_.log();
    ASSERT_EQ(stateOf("crasher"), "apart") << supervisor_.log();
    ASSERT_TRUE(innocent_->waitFor([&] {
      return innocent_->serving(1, 0) == innocent_->serving(1, 1) &&
             workersOf(*crasher_).count(innocent_->serving(1, 0)) == 0 &&
             serves(*innocent_, innocent_->serving(1, 0));
    })) << supervisor_.log();
  }

  SharedSupervisor supervisor_;
  std::unique_ptr<ControlClient> crasher_;
  std::unique_ptr<ControlClient> innocent_;
};

TEST_F(TwoPrograms, AreKeptApartIfOneEndsWorkersInWhichTheOthersCodeRan) {
  ASSERT_NO_FATAL_FAILURE(crashUntilApart());
  const uint64_t worker = innocent_->serving(1, 0);
  for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(crashOnce());
  EXPECT_EQ(innocent_->call(worker, "served"), "served") << "no worker of it has ended";
  EXPECT_TRUE(innocent_->quarantines().empty());
  EXPECT_TRUE(has(supervisor_.log(), "programs are kept apart: client ")) << supervisor_.log();
  // A program that comes later is no suspect.
  const auto late = supervisor_.attachWithPool(2, "late");
  EXPECT_EQ(workersOf(*late), workersOf(*innocent_));
}

TEST_F(TwoPrograms, UseAllWorkersAgainWhenTheOneThatWasApartHasLeft) {
  ASSERT_NO_FATAL_FAILURE(crashUntilApart());
  crasher_.reset();
  EXPECT_TRUE(innocent_->waitFor([&] { return workersOf(*innocent_).size() == 2; }))
      << supervisor_.log();
  for (const uint64_t worker : workersOf(*innocent_)) {
    EXPECT_EQ(innocent_->call(worker, "served"), "served");
  }
  EXPECT_TRUE(has(supervisor_.log(), "all programs call all workers again"));
}

class TwoProgramsForAShortTime : public TwoPrograms {
 protected:
  TwoProgramsForAShortTime() : TwoPrograms("700ms") {}
};

TEST_F(TwoProgramsForAShortTime, UseAllWorkersAgainAfterATimeWithoutADeath) {
  ASSERT_NO_FATAL_FAILURE(crashUntilApart());
  ASSERT_TRUE(supervisor_.waitForReport([](const ipc::Report& report) {
    return clientNamed(report, "crasher")->state == "attached";
  }));
  for (ControlClient* client : {crasher_.get(), innocent_.get()}) {
    client->statistics();  // behind all messages up to the end
    EXPECT_TRUE(client->waitFor([&] { return workersOf(*client).size() == 2; }))
        << supervisor_.log();
    for (const uint64_t worker : workersOf(*client)) {
      EXPECT_EQ(client->call(worker, "served"), "served");
    }
  }
}

// Its calls and sessions there go on until it releases the worker.
TEST_F(TwoPrograms, AreAskedToReleaseTheWorkerThatTheyLeave) {
  const uint64_t left = crasher_->serving(1, 1);
  ASSERT_NO_FATAL_FAILURE(crashUntilApart());
  ASSERT_TRUE(crasher_->waitFor([&] { return !crasher_->retired().empty(); }));
  EXPECT_EQ(crasher_->retired().front(), left);
  EXPECT_EQ(crasher_->call(left, "still served"), "still served");
  crasher_->send(ipc::WorkerReleased{left});
  EXPECT_TRUE(crasher_->waitFor([&] {
    const std::vector<uint64_t>& closed = crasher_->closedChannels();
    return std::find(closed.begin(), closed.end(), left) != closed.end();
  })) << supervisor_.log();
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
