// SPDX-License-Identifier: BSD-3-Clause
// What an operator has a running supervisor do, and who may.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "ipc/control/client_messages.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

using ipc::Action;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Eviction, EndsTheConnectionOfTheClientAndOfNoOther) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto victim = supervisor.attachWithPool(1, "victim");
  const auto other = supervisor.attachWithPool(1, "other");
  const ipc::ActionDone outcome = supervisor.act(Action::kEvictClient, victim->welcome().client);
  EXPECT_TRUE(outcome.done);
  EXPECT_TRUE(has(outcome.text, "(victim, pid " + std::to_string(::getpid()))) << outcome.text;
  EXPECT_TRUE(victim->waitForEnd());
  EXPECT_TRUE(has(victim->failure().value_or(""), "an operator (user ")) << *victim->failure();
  EXPECT_EQ(other->call(other->serving(1, 0), "unharmed"), "unharmed");
  const ipc::Report report = supervisor.report();
  ASSERT_EQ(report.clients.size(), 1u);
  EXPECT_EQ(report.clients[0].program, "other");
  EXPECT_EQ(report.refusedConnections, 0u);
}

TEST(Eviction, EndsARunningCallAfterTheGracePeriod) {
  SharedSupervisor supervisor({"--workers", "1", "--grace", "50ms"});
  const auto victim = supervisor.attachWithPool(1, "victim");
  const auto other = supervisor.attachWithPool(1, "other");
  const uint64_t worker = victim->serving(1, 0);
  victim->post(worker, "!hang");
  ASSERT_TRUE(victim->waitFor([&] { return victim->worker(worker).end->hasStarted(1); }));
  EXPECT_TRUE(supervisor.act(Action::kEvictClient, victim->welcome().client).done);
  ASSERT_TRUE(other->waitFor([&] { return other->serving(1, 0) != worker; }));
  EXPECT_EQ(other->call(other->serving(1, 0), "served"), "served");
}

TEST(Eviction, IsNoBan) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto victim = supervisor.attachWithPool(1);
  ASSERT_TRUE(supervisor.act(Action::kEvictClient, victim->welcome().client).done);
  ASSERT_TRUE(victim->waitForEnd());
  const auto again = supervisor.attachWithPool(1);
  EXPECT_GT(again->welcome().client, victim->welcome().client);
  EXPECT_EQ(again->call(again->serving(1, 0), "back"), "back");
}

/// The reason for which a program of this name is refused; empty if it is served.
std::string refusalOf(const SharedSupervisor& supervisor, const std::string& program) {
  ControlClient client(supervisor.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  hello.program = program;
  client.send(hello, {pidfd.get()});
  EXPECT_TRUE(client.waitFor([&] { return client.isWelcome() || client.controlEnded(); }));
  return client.failure().value_or("");
}

TEST(Eviction, ForATimeKeepsProgramsOfTheUserAndTheNameAway) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto victim = supervisor.attachWithPool(1, "victim");
  const auto other = supervisor.attachWithPool(1, "other");
  const auto until = Clock::now() + milliseconds(700);  // not after the end of the ban
  const ipc::ActionDone outcome =
      supervisor.act(Action::kEvictClient, victim->welcome().client, "", milliseconds(700));
  EXPECT_TRUE(has(outcome.text, "with the name victim are refused for 700 ms")) << outcome.text;
  ASSERT_TRUE(victim->waitForEnd());
  EXPECT_TRUE(has(victim->failure().value_or(""), "may attach again in 700 ms"));
  for (int i = 0; i < 5 && Clock::now() < until - milliseconds(100); ++i) {
    EXPECT_TRUE(has(refusalOf(supervisor, "victim"), "has evicted programs of user "));
  }
  EXPECT_EQ(refusalOf(supervisor, "other"), "");
  EXPECT_EQ(other->call(other->serving(1, 0), "unharmed"), "unharmed");
  // Its managers try again and again: one line for all of them.
  const std::string log = supervisor.log();
  const size_t first = log.find("is refused: an operator has evicted");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(log.find("is refused: an operator has evicted", first + 1), std::string::npos) << log;
  const auto late = Clock::now() + milliseconds(5000);
  while (!refusalOf(supervisor, "victim").empty() && Clock::now() < late) ::usleep(20'000);
  EXPECT_GE(Clock::now(), until);
  EXPECT_EQ(refusalOf(supervisor, "victim"), "");
}

std::string stateOf(const SharedSupervisor& supervisor, const std::string& program) {
  const ipc::Report report = supervisor.report();
  const ipc::ReportedClient* client = clientNamed(report, program);
  return client != nullptr ? client->state : "gone";
}

TEST(Pause, IsReportedAndEndsWithResumeAfterItsTimeOrWithADrain) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1, "paused");
  const uint64_t number = client->welcome().client;
  EXPECT_TRUE(supervisor.act(Action::kPauseClient, number).done);
  EXPECT_EQ(stateOf(supervisor, "paused"), "paused");
  EXPECT_TRUE(client->waitFor([&] { return client->paused(); }));
  EXPECT_TRUE(supervisor.act(Action::kResumeClient, number).done);
  EXPECT_TRUE(client->waitFor([&] { return !client->paused(); }));
  EXPECT_EQ(stateOf(supervisor, "paused"), "attached");
  EXPECT_TRUE(has(supervisor.act(Action::kResumeClient, number).text, "is not paused"));
  EXPECT_TRUE(supervisor.act(Action::kPauseClient, number, "", milliseconds(50)).done);
  EXPECT_TRUE(client->waitFor([&] { return client->paused(); }));
  EXPECT_TRUE(client->waitFor([&] { return !client->paused(); }));
  // The second pause replaces the first one, and its time.
  EXPECT_TRUE(supervisor.act(Action::kPauseClient, number, "", milliseconds(200)).done);
  const auto until = Clock::now() + milliseconds(200);
  EXPECT_TRUE(supervisor.act(Action::kPauseClient, number).done);
  while (Clock::now() < until) EXPECT_EQ(stateOf(supervisor, "paused"), "paused");
  EXPECT_EQ(stateOf(supervisor, "paused"), "paused");
  supervisor.signal(SIGTERM);
  EXPECT_TRUE(client->waitFor([&] { return client->drain().has_value(); }));
  EXPECT_FALSE(client->paused());
  client->send(ipc::AcknowledgeDrain{});
  EXPECT_EQ(supervisor.waitForEnd(), 0);
}

TEST(Pause, EndsWithItsClientAndIsForItAlone) {
  SharedSupervisor supervisor({"--workers", "1"});
  auto client = supervisor.attachWithPool(1, "paused");
  const auto other = supervisor.attachWithPool(1, "other");
  EXPECT_TRUE(supervisor.act(Action::kPauseClient, client->welcome().client).done);
  EXPECT_EQ(stateOf(supervisor, "other"), "attached");
  EXPECT_EQ(other->call(other->serving(1, 0), "goes on"), "goes on");
  client.reset();
  const auto again = supervisor.attachWithPool(1, "paused");
  EXPECT_EQ(stateOf(supervisor, "paused"), "attached");
  EXPECT_TRUE(has(supervisor.act(Action::kPauseClient, 999).text, "there is no client #999"));
}

pid_t processOf(ControlClient& client, uint64_t worker) {
  return client.worker(worker).introduction.processId;
}

// The client no longer uses the worker, which then ends.
void release(ControlClient& client, uint64_t worker) {
  ASSERT_TRUE(client.waitFor(
      [&] { return std::count(client.retired().begin(), client.retired().end(), worker) != 0; }));
  client.send(ipc::WorkerReleased{worker});
  ASSERT_TRUE(client.waitFor([&] { return client.worker(worker).died.has_value(); }));
}

TEST(RecycleAction, ReplacesTheWorkerAndItsRunningCallCompletes) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  ASSERT_NE(client->waitForSpare(), 0u);
  const uint64_t worker = client->serving(1, 0);
  const std::string gate = supervisor.folder() + "/gate";
  client->post(worker, "!await " + gate);
  ASSERT_TRUE(client->waitFor([&] { return client->worker(worker).end->hasStarted(1); }));
  const auto pid = static_cast<uint64_t>(processOf(*client, worker));
  const ipc::ActionDone outcome = supervisor.act(Action::kRecycleWorker, pid);
  EXPECT_TRUE(outcome.done) << outcome.text;
  EXPECT_TRUE(has(outcome.text, "worker 0 (pid " + std::to_string(pid) + ") of shared pool"))
      << outcome.text;
  ASSERT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
  EXPECT_EQ(client->call(client->serving(1, 0), "served"), "served");
  EXPECT_FALSE(client->worker(worker).died);
  std::ofstream(gate) << "";
  ipc::ClientEnd& end = *client->worker(worker).end;
  EXPECT_TRUE(client->waitFor([&] { return end.completionReady(); }));
  release(*client, worker);
  const ipc::Report report = supervisor.report();
  EXPECT_EQ(report.recycled, 1u);
  EXPECT_EQ(report.restarts, 0u);
  EXPECT_TRUE(has(supervisor.log(), "is replaced: an operator wanted it (user "));
}

TEST(RecycleAction, OfASlotReplacesTheWorkerThatServesIt) {
  SharedSupervisor supervisor({"--workers", "2", "--spares", "0"});
  const auto client = supervisor.attachWithPool(2);
  const std::vector<ipc::ReportedWorker> workers = supervisor.report().workers;
  const auto its = std::find_if(workers.begin(), workers.end(),
                                [](const ipc::ReportedWorker& each) { return each.slot == 1; });
  ASSERT_NE(its, workers.end());
  EXPECT_TRUE(supervisor.act(Action::kRecycleSlot, 1, "shared").done);
  release(*client, its->epoch);
  EXPECT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
    return report.recycled == 1 && report.workers.size() == 2;
  })) << "a group without spares keeps none";
}

TEST(RecycleAction, OfAllReplacesOneWorkerAfterAnother) {
  SharedSupervisor supervisor({"--workers", "2"});
  const auto client = supervisor.attachWithPool(2);
  const std::set<uint64_t> former{client->serving(1, 0), client->serving(1, 1)};
  EXPECT_TRUE(supervisor.act(Action::kRecycleAll).done);
  ASSERT_TRUE(client->waitFor([&] { return !client->retired().empty(); }));
  const uint64_t first = client->retired().front();
  EXPECT_TRUE(former.contains(first));
  // The second one waits until the first one has ended: it is asked for again and again.
  const size_t asked = client->retired().size();
  ASSERT_TRUE(client->waitFor([&] { return client->retired().size() >= asked + 3; }));
  EXPECT_EQ(std::count(client->retired().begin(), client->retired().end(), first),
            static_cast<ptrdiff_t>(client->retired().size()));
  release(*client, first);
  const uint64_t second = *former.begin() == first ? *former.rbegin() : *former.begin();
  release(*client, second);
  const ipc::Report report = supervisor.report();
  EXPECT_EQ(report.recycled, 2u);
  EXPECT_EQ(report.restarts, 0u);
  for (const uint32_t slot : {0u, 1u}) {
    EXPECT_EQ(client->call(client->serving(1, slot), "served"), "served");
  }
}

TEST(RecycleAction, OfAWorkerThatServesNothingIsRefusedWithTheReason) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t spare = client->waitForSpare();
  ASSERT_NE(spare, 0u);
  const auto refusal = [&](Action action, uint64_t target, const std::string& group = {}) {
    const ipc::ActionDone outcome = supervisor.act(action, target, group);
    EXPECT_FALSE(outcome.done);
    return outcome.text;
  };
  const auto pidOf = [&](uint64_t worker) {
    return static_cast<uint64_t>(processOf(*client, worker));
  };
  EXPECT_TRUE(has(refusal(Action::kRecycleWorker, pidOf(spare)), ") serves no slot"));
  EXPECT_TRUE(has(refusal(Action::kRecycleWorker, 0), "no worker has the process id 0"));
  EXPECT_TRUE(has(refusal(Action::kRecycleSlot, 1, "shared"), "there is no slot shared/1"));
  EXPECT_TRUE(has(refusal(Action::kRecycleSlot, UINT64_MAX, "shared"), "there is no slot shared/"));
  EXPECT_TRUE(has(refusal(Action::kRecycleSlot, 0, "gold"), "no workers have the name gold"));
  const uint64_t worker = client->serving(1, 0);
  EXPECT_TRUE(supervisor.act(Action::kRecycleWorker, pidOf(worker)).done);
  ASSERT_TRUE(client->waitFor([&] { return !client->retired().empty(); }));
  EXPECT_TRUE(has(refusal(Action::kRecycleWorker, pidOf(worker)), "has been replaced already"));
}

TEST(RecycleAction, WaitsForASpare) {
  SharedSupervisor supervisor({"--workers", "1", "--restart-limit", "1", "--quarantine", "1s"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  const uint64_t spare = client->waitForSpare();
  ASSERT_NE(spare, 0u);
  ASSERT_EQ(::kill(processOf(*client, spare), SIGKILL), 0);
  ASSERT_TRUE(client->waitFor([&] { return client->worker(spare).died.has_value(); }));
  const auto pid = static_cast<uint64_t>(processOf(*client, worker));
  EXPECT_TRUE(supervisor.act(Action::kRecycleWorker, pid).done);
  EXPECT_EQ(client->serving(1, 0), worker);
  ASSERT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
  release(*client, worker);
}

TEST(Action, WithAWrongTargetIsRefusedWithTheReason) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  const ipc::ActionDone evicted = supervisor.act(Action::kEvictClient, 999);
  EXPECT_FALSE(evicted.done);
  EXPECT_TRUE(has(evicted.text, "there is no client #999")) << evicted.text;
  const ipc::ActionDone unknown = supervisor.act(static_cast<Action>(4711));
  EXPECT_FALSE(unknown.done);
  EXPECT_TRUE(has(unknown.text, "has no action 4711")) << unknown.text;
  EXPECT_EQ(client->call(client->serving(1, 0), "unharmed"), "unharmed");
}

TEST(Action, IsLoggedWithTheUserAndTheProcessThatRequestedIt) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto victim = supervisor.attachWithPool(1, "victim");
  supervisor.act(Action::kEvictClient, victim->welcome().client);
  const std::string by = "an operator (user " + std::to_string(::getuid()) + ", pid " +
                         std::to_string(::getpid()) + ")";
  EXPECT_TRUE(has(supervisor.log(), by + " requested an action; done: client "))
      << supervisor.log();
  EXPECT_TRUE(victim->waitForEnd());
  EXPECT_FALSE(has(supervisor.log(), "is refused")) << supervisor.log();
  supervisor.act(Action::kEvictClient, 999);
  EXPECT_TRUE(has(supervisor.log(), by + " requested an action; refused: ")) << supervisor.log();
}

TEST(Action, IsForOperatorsOnly) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto program = supervisor.attachWithPool(1);
  const auto other = supervisor.attachWithPool(1);
  program->send(ipc::RequestAction{1, static_cast<uint32_t>(Action::kEvictClient),
                                   other->welcome().client, ""});
  EXPECT_TRUE(program->waitForEnd());
  EXPECT_EQ(other->call(other->serving(1, 0), "unharmed"), "unharmed");
}

TEST(Action, OfAUserWhoMayOnlyConnectIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  SharedSupervisor supervisor({"--workers", "1", "--socket-group", "nogroup"});
  std::filesystem::permissions(supervisor.folder(), std::filesystem::perms::all);
  const auto client = supervisor.attachWithPool(1);
  const pid_t stranger = ::fork();
  ASSERT_GE(stranger, 0);
  if (stranger == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    if (supervisor.report().clients.size() != 1) ::_exit(2);
    const ipc::ActionDone outcome = supervisor.act(Action::kEvictClient, client->welcome().client);
    const bool refused = !outcome.done && has(outcome.text, "user 65534 may read reports, but");
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ::waitpid(stranger, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(client->call(client->serving(1, 0), "unharmed"), "unharmed");
}

}  // namespace
}  // namespace isopool::tests
