// SPDX-License-Identifier: BSD-3-Clause
// A program reports that a worker is dead (ReportDeath): the shared supervisor asks the kernel and
// the worker.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <utility>

#include "base/procfs.h"
#include "ipc/control/client_messages.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

class ReportedWorker : public testing::Test {
 protected:
  size_t timesLogged(const std::string& text) const {
    const std::string log = supervisor_.log();
    size_t times = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++times;
    return times;
  }
  /// Reports that the worker is dead, and waits until the supervisor has closed the
  /// reporter's channel.
  void report(uint64_t worker, const std::string& reason) {
    const size_t before = reporter_->closedChannels().size();
    reporter_->send(ipc::ReportDeath{worker, reason});
    ASSERT_TRUE(
        reporter_->waitFor([&] { return reporter_->closedChannels().size() == before + 1; }));
  }

  SharedSupervisor supervisor_{{"--workers", "1", "--grace", "50ms", "--worker-timeout", "300ms"}};
  std::unique_ptr<ControlClient> other_ = supervisor_.attachWithPool(1, "other");
  std::unique_ptr<ControlClient> reporter_ = supervisor_.attachWithPool(1, "reporter");
  const uint64_t worker_ = other_->serving(1, 0);
};

TEST_F(ReportedWorker, ContinuesToServeIfItRuns) {
  const auto assigned = reporter_->assignedAt(1, 0);
  report(worker_, "a ruse\x1b[2J\nisopoold[1] error: forged");
  // The reporter has a new channel to the same worker.
  ASSERT_TRUE(reporter_->waitFor([&] { return reporter_->assignedAt(1, 0) != assigned; }));
  EXPECT_EQ(reporter_->serving(1, 0), worker_);
  EXPECT_EQ(reporter_->call(worker_, "again"), "again");
  EXPECT_EQ(other_->call(worker_, "undisturbed"), "undisturbed");
  EXPECT_FALSE(other_->worker(worker_).died);
  EXPECT_EQ(supervisor_.report().restarts, 0u);
  EXPECT_EQ(
      timesLogged("(reporter, pid " + std::to_string(::getpid()) + ", user " +
                  std::to_string(::getuid()) + ") reported: a ruse?[2J?isopoold[1] error: forged"),
      1u)
      << supervisor_.log();
}

TEST_F(ReportedWorker, IsLostOnlyToAProgramThatReportsItRepeatedly) {
  for (int times = 1; times < 3; ++times) {
    const auto assigned = reporter_->assignedAt(1, 0);
    report(worker_, "again");
    ASSERT_TRUE(reporter_->waitFor([&] { return reporter_->assignedAt(1, 0) != assigned; }));
  }
  report(worker_, "again");
  ASSERT_TRUE(reporter_->waitFor([&] { return !reporter_->quarantines().empty(); }));
  EXPECT_NE(reporter_->quarantines().front().text.find("reported it 3 times, but it answers"),
            std::string::npos)
      << reporter_->quarantines().front().text;
  for (int i = 0; i < 100; ++i) reporter_->send(ipc::ReportDeath{worker_, "again"});
  EXPECT_EQ(other_->call(worker_, "undisturbed"), "undisturbed");
  EXPECT_EQ(supervisor_.report().restarts, 0u);
  // The reports do not apply to the next worker.
  other_->killAndReport(worker_);
  ASSERT_TRUE(reporter_->waitFor([&] { return reporter_->serving(1, 0) != worker_; }));
  EXPECT_EQ(reporter_->call(reporter_->serving(1, 0), "served"), "served");
}

TEST_F(ReportedWorker, IsReplacedIfASignalHasStoppedIt) {
  const pid_t process = other_->worker(worker_).introduction.processId;
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  ASSERT_TRUE(other_->waitFor([&] { return base::statusOf(process).state == 'T'; }));
  reporter_->send(ipc::ReportDeath{worker_, "it sleeps on though it was called"});
  for (const auto* client : {&other_, &reporter_}) {
    ASSERT_TRUE((*client)->waitFor([&] { return (*client)->serving(1, 0) != worker_; }));
    EXPECT_EQ((*client)->call((*client)->serving(1, 0), "served"), "served");
  }
  // The spare serves before the stopped worker has ended, which is logged.
  EXPECT_TRUE(other_->waitFor([&] { return timesLogged("it was stopped by a signal") == 1; }))
      << supervisor_.log();
}

// A debugger may have stopped the worker.
TEST(ReportedWorkerInNoKillMode, ServesAgainAfterSigcont) {
  SharedSupervisor supervisor({"--workers", "1", "--no-kill"});
  const auto client = supervisor.attachWithPool(1, "program");
  const uint64_t worker = client->serving(1, 0);
  const pid_t process = client->worker(worker).introduction.processId;
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  ASSERT_TRUE(client->waitFor([&] { return base::statusOf(process).state == 'T'; }));
  client->send(ipc::ReportDeath{worker, "it sleeps on though it was called"});
  client->statistics();  // answers keep the order: the report has been read
  ASSERT_EQ(::kill(process, SIGCONT), 0);
  EXPECT_EQ(client->call(worker, "served"), "served");
}

bool isStopped(const ipc::Report& report) {
  return !report.workers.empty() &&
         std::any_of(report.workers.begin(), report.workers.end(),
                     [](const ipc::ReportedWorker& worker) { return worker.stopped; });
}

/// A program whose only call runs without a deadline, and a worker that a signal then stops.
class StoppedWorker : public testing::Test {
 protected:
  void begin(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--workers", "1", "--spares", "0"});
    supervisor_.emplace(std::move(flags));
    client_ = supervisor_->attachWithPool(1, "program");
    worker_ = client_->serving(1, 0);
    process_ = client_->worker(worker_).introduction.processId;
    client_->post(worker_, "!await " + supervisor_->folder() + "/end");
    ASSERT_TRUE(client_->waitFor([&] { return client_->worker(worker_).end->hasStarted(1); }));
  }
  bool logHas(const std::string& text) const {
    return supervisor_->log().find(text) != std::string::npos;
  }

  std::optional<SharedSupervisor> supervisor_;
  std::unique_ptr<ControlClient> client_;
  uint64_t worker_ = 0;
  pid_t process_ = 0;
};

TEST_F(StoppedWorker, IsReplacedAfterTheTimeoutThoughItsCallHasNoLimit) {
  begin({"--stopped-timeout", "1500ms"});
  ASSERT_EQ(::kill(process_, SIGSTOP), 0);
  EXPECT_TRUE(client_->waitFor([&] {
    return logHas(
        " has been stopped by a signal; unless it is continued, it is killed in 500 ms "
        "(ISOPOOL_STOPPED_TIMEOUT)\"");
  })) << supervisor_->log();
  EXPECT_TRUE(isStopped(supervisor_->report()));
  ASSERT_TRUE(client_->waitFor([&] {
    return client_->serving(1, 0) != 0 && client_->serving(1, 0) != worker_;
  })) << supervisor_->log();
  EXPECT_EQ(client_->call(client_->serving(1, 0), "served"), "served");
  EXPECT_TRUE(client_->waitFor([&] {
    return logHas("it was not continued within 1500 ms (ISOPOOL_STOPPED_TIMEOUT)");
  })) << supervisor_->log();
  EXPECT_TRUE(supervisor_->waitForReport([](const ipc::Report& report) {
    for (const ipc::ReportedCount& each : report.groups.at(0).deaths) {
      if (each.name == "stopped") return each.count == 1;
    }
    return false;
  }));
}

TEST_F(StoppedWorker, IsReplacedAfterFiveSecondsIfACallWaitsForItAndNoOtherWorkerServes) {
  begin({"--stopped-timeout", "1h"});
  ASSERT_EQ(::kill(process_, SIGSTOP), 0);
  client_->post(worker_, "waits");
  ASSERT_TRUE(client_->waitFor(
      [&] { return client_->serving(1, 0) != 0 && client_->serving(1, 0) != worker_; },
      milliseconds(20'000)))
      << supervisor_->log();
  EXPECT_TRUE(
      logHas("unless it is continued, it is killed in 3599000 ms (ISOPOOL_STOPPED_TIMEOUT), or in "
             "4000 ms if calls wait for it that no other worker can serve"))
      << supervisor_->log();
  EXPECT_TRUE(client_->waitFor([&] { return logHas("no other worker could serve them"); }));
  EXPECT_EQ(client_->call(client_->serving(1, 0), "served"), "served");
}

TEST_F(StoppedWorker, LivesIfItIsContinuedInTime) {
  begin({"--stopped-timeout", "2s"});
  ASSERT_EQ(::kill(process_, SIGSTOP), 0);
  ASSERT_TRUE(client_->waitFor([&] { return logHas(" has been stopped by a signal"); }));
  ASSERT_EQ(::kill(process_, SIGCONT), 0);
  EXPECT_FALSE(client_->waitFor([&] { return client_->worker(worker_).died.has_value(); },
                                milliseconds(2500)));
  std::ofstream(supervisor_->folder() + "/end") << "";
  EXPECT_TRUE(client_->waitFor([&] { return client_->worker(worker_).end->completionReady(); }));
}

// As cpulimit does, to limit a process's use of the processor.
TEST_F(StoppedWorker, LivesIfItIsStoppedAndContinuedAgainAndAgain) {
  begin({"--stopped-timeout", "500ms"});
  const auto end = std::chrono::steady_clock::now() + milliseconds(2000);
  while (std::chrono::steady_clock::now() < end) {
    ::kill(process_, SIGSTOP);
    client_->waitFor([] { return false; }, milliseconds(60));
    ::kill(process_, SIGCONT);
    client_->waitFor([] { return false; }, milliseconds(10));
  }
  EXPECT_FALSE(client_->worker(worker_).died.has_value()) << supervisor_->log();
  EXPECT_FALSE(logHas("stopped by a signal")) << supervisor_->log();
}

TEST_F(StoppedWorker, IsReportedAndNeverKilledInNoKillMode) {
  begin({"--stopped-timeout", "100ms", "--no-kill"});
  ASSERT_EQ(::kill(process_, SIGSTOP), 0);
  ASSERT_TRUE(client_->waitFor([&] { return logHas(" has been stopped by a signal"); }));
  EXPECT_FALSE(client_->waitFor([&] { return client_->worker(worker_).died.has_value(); },
                                milliseconds(500)));
  EXPECT_TRUE(isStopped(supervisor_->report()));
  ASSERT_EQ(::kill(process_, SIGCONT), 0);
}

TEST_F(ReportedWorker, IsReplacedIfEveryProgramReportsIt) {
  report(worker_, "what it published is nonsense");
  other_->send(ipc::ReportDeath{worker_, "what it published is nonsense"});
  for (const auto* client : {&other_, &reporter_}) {
    ASSERT_TRUE((*client)->waitFor([&] { return (*client)->serving(1, 0) != worker_; }));
    EXPECT_EQ((*client)->call((*client)->serving(1, 0), "served"), "served");
  }
}

TEST_F(ReportedWorker, IsReplacedIfItDoesNotAnswer) {
  supervisor_.setMode("worker-keeps-channels");
  other_->killAndReport(worker_);
  ASSERT_TRUE(other_->waitFor([&] { return other_->serving(1, 0) != worker_; }));
  // The spare that takes over was forked before setMode(); its successor keeps its channels.
  const uint64_t spare = other_->serving(1, 0);
  other_->killAndReport(spare);
  for (const auto* client : {&other_, &reporter_}) {
    ASSERT_TRUE((*client)->waitFor([&] {
      const uint64_t serving = (*client)->serving(1, 0);
      return serving != spare && serving != worker_;
    }));
  }
  supervisor_.setMode("");
  const uint64_t stuck = other_->serving(1, 0);
  reporter_->send(ipc::ReportDeath{stuck, "it sleeps on though it was called"});
  ASSERT_TRUE(other_->waitFor([&] { return other_->worker(stuck).died.has_value(); }));
  // The supervisor logs after it has sent the message.
  EXPECT_TRUE(other_->waitFor([&] {
    return timesLogged("to detach a channel (ISOPOOL_WORKER_TIMEOUT)") == 1;
  })) << supervisor_.log();
}

}  // namespace
}  // namespace isopool::tests
