// SPDX-License-Identifier: BSD-3-Clause
// The subcommands that change something, with a real supervisor and plain workers.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/attached_program.h"
#include "tests/cli/own_supervisor.h"
#include "tests/cli/running_command.h"

namespace isopool::tests {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

CommandOutcome run(const OwnSupervisor& supervisor, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--socket", supervisor.address()});
  return runCommand(arguments);
}

void expectRefused(const CommandOutcome& outcome, const std::string& reason) {
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  EXPECT_TRUE(has(outcome.errors, "isopool: ") && has(outcome.errors, reason)) << outcome.errors;
}

TEST(Evict, EndsTheClientWithTheNumberThatClientsShows) {
  const OwnSupervisor supervisor;
  AttachedProgram victim(supervisor.address(), "victim");
  AttachedProgram other(supervisor.address(), "other");
  const ipc::Report report = supervisor.report();
  const auto found =
      std::find_if(report.clients.begin(), report.clients.end(),
                   [](const ipc::ReportedClient& client) { return client.program == "victim"; });
  ASSERT_NE(found, report.clients.end());
  const CommandOutcome outcome = run(supervisor, {"evict", std::to_string(found->number)});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "client " + std::to_string(found->number) + " (victim, pid " +
                                std::to_string(::getpid()) + ", user " +
                                std::to_string(::getuid()) + ") is evicted\n");
  EXPECT_TRUE(has(victim.waitForRefusal(), "evicted this client"));
  EXPECT_EQ(other.call("unharmed"), "unharmed");
}

TEST(Evict, TakesTheNumberAsClientsWritesItAndPrintsJson) {
  const OwnSupervisor supervisor;
  AttachedProgram victim(supervisor.address(), "victim");
  const uint64_t number = supervisor.report().clients.at(0).number;
  std::string shown = "#";
  shown += std::to_string(number);
  const CommandOutcome done = run(supervisor, {"evict", shown, "--json"});
  EXPECT_EQ(done.exitCode, 0) << done.errors;
  EXPECT_EQ(inJson(done.output, "value['done'], 'is evicted' in value['text']"), "(True, True)");
  const CommandOutcome refused = run(supervisor, {"evict", std::to_string(number), "--json"});
  EXPECT_EQ(refused.exitCode, 1);
  EXPECT_EQ(inJson(refused.output, "value['done']"), "False");
  expectRefused(run(supervisor, {"evict", std::to_string(number)}),
                "there is no client #" + std::to_string(number));
}

TEST(Evict, WithoutANumberIsWrongUsage) {
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"evict"}, {"evict", "victim"}, {"evict", "0"}, {"evict", "-3"}, {"evict", "7", "8"}}) {
    const CommandOutcome outcome = runCommand(wrong);
    EXPECT_EQ(outcome.exitCode, 2) << wrong.back();
    EXPECT_EQ(outcome.output, "");
    EXPECT_NE(outcome.errors, "");
  }
}

TEST(Evict, ForATimeKeepsTheProgramAway) {
  const OwnSupervisor supervisor;
  AttachedProgram victim(supervisor.address(), "victim");
  const std::string number = std::to_string(supervisor.report().clients.at(0).number);
  const CommandOutcome outcome = run(supervisor, {"evict", number, "--for", "1h"});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  EXPECT_TRUE(has(outcome.output, "with the name victim are refused for 3600 s")) << outcome.output;
  EXPECT_TRUE(has(victim.waitForRefusal(), "may attach again in 3600 s"));
  for (const char* wrong : {"0", "-1", "soon"}) {
    EXPECT_EQ(run(supervisor, {"evict", number, "--for", wrong}).exitCode, 2) << wrong;
  }
}

TEST(ATime, ThatIsNotAllowedIsRefusedWithWhatIs) {
  for (const char* wrong : {"0", "-1", "8785h"}) {
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"drain", "--wait", wrong}, {"pause", "1", "--for", wrong}}) {
      const CommandOutcome outcome = runCommand(words);
      EXPECT_EQ(outcome.exitCode, 2);
      EXPECT_TRUE(has(outcome.errors, "the time must be between 1ms and 366 days"))
          << outcome.errors;
    }
  }
}

TEST(AnAddress, OfAnotherFileThanASocketIsNamedAsSuch) {
  const std::string folder = runCommand({"--socket", "/tmp", "status"}).errors;
  EXPECT_TRUE(has(folder, "at /tmp can't be reached: it is a folder, not a socket")) << folder;
  EXPECT_FALSE(has(folder, "start a supervisor")) << folder;
  const std::string file = runCommand({"--socket", "/proc/self/exe", "status"}).errors;
  EXPECT_TRUE(has(file, "it is a regular file, not a socket")) << file;
}

TEST(Pause, IsShownUntilTheClientIsResumed) {
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trader");
  const std::string number = std::to_string(supervisor.report().clients.at(0).number);
  const CommandOutcome paused = run(supervisor, {"pause", number, "--for", "5m"});
  EXPECT_EQ(paused.exitCode, 0) << paused.errors;
  EXPECT_TRUE(has(paused.output, "is paused for 300 s: its calls wait")) << paused.output;
  EXPECT_TRUE(has(run(supervisor, {"status"}).output, "is paused: its calls wait"));
  EXPECT_TRUE(has(run(supervisor, {"clients"}).output, "paused"));
  EXPECT_EQ(run(supervisor, {"resume", number}).exitCode, 0);
  EXPECT_FALSE(has(run(supervisor, {"status"}).output, "is paused"));
  expectRefused(run(supervisor, {"resume", number}), "is not paused");
}

TEST(Restart, EndsWhenAnotherSupervisorServes) {
  const OwnSupervisor supervisor;
  const int32_t former = supervisor.report().processId;
  const CommandOutcome outcome = run(supervisor, {"restart"});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  const int32_t present = supervisor.report().processId;
  EXPECT_NE(present, former);
  EXPECT_EQ(outcome.output, "isopoold (pid " + std::to_string(present) +
                                ") serves; the former one (pid " + std::to_string(former) +
                                ") ends when its calls in flight have ended\n");
}

TEST(Restart, TellsOfTheFormerSupervisorIfItIsKilledMeanwhile) {
  const TemporaryFolder folder;
  const std::string mode = folder.path() + "/mode";
  std::ofstream(mode) << "";
  ::setenv("PLAIN_WORKER_MODE", mode.c_str(), 1);
  const OwnSupervisor supervisor;
  ::unsetenv("PLAIN_WORKER_MODE");
  const int32_t former = supervisor.processId();
  std::ofstream(mode) << "zygote-waits";
  RunningCommand restart({"restart", "--socket", supervisor.address()});
  supervisor.waitFor([](const ipc::Report& report) { return report.successor == "starting"; });
  supervisor.signal(SIGKILL);
  std::ofstream(mode) << "";
  const CommandOutcome outcome = restart.finish();
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  const int32_t present = supervisor.report().processId;
  EXPECT_NE(present, former);
  EXPECT_EQ(outcome.output, "isopoold (pid " + std::to_string(present) +
                                ") serves; the former one (pid " + std::to_string(former) +
                                ") was killed or crashed meanwhile: its calls in flight are lost, "
                                "and the log has the signal\n");
}

TEST(DrainCommand, WithWaitEndsWhenTheSupervisorHasEnded) {
  const OwnSupervisor supervisor;
  const CommandOutcome outcome = run(supervisor, {"drain", "--wait", "10s"});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "the supervisor has ended\n");
  expectRefused(run(supervisor, {"status"}), "can't be reached");
}

bool isServing(const ipc::ReportedWorker& worker) { return worker.state == "serving"; }

ipc::Report whenServing(const OwnSupervisor& supervisor, ptrdiff_t workers) {
  return supervisor.waitFor([&](const ipc::Report& report) {
    return std::count_if(report.workers.begin(), report.workers.end(), isServing) == workers;
  });
}

pid_t processOfSlot(const ipc::Report& report, int32_t slot) {
  for (const ipc::ReportedWorker& worker : report.workers) {
    if (isServing(worker) && worker.slot == slot) return worker.processId;
  }
  return 0;
}

TEST(Recycle, WaitsUntilTheWorkerIsReplaced) {
  const OwnSupervisor supervisor({"--workers", "2"});
  const ipc::Report before = whenServing(supervisor, 2);
  const pid_t first = processOfSlot(before, 0);
  const CommandOutcome byPid = run(supervisor, {"recycle", std::to_string(first), "--wait", "10s"});
  EXPECT_EQ(byPid.exitCode, 0) << byPid.errors;
  EXPECT_EQ(byPid.output, "1 worker replaced\n");
  EXPECT_NE(::kill(first, 0), 0);
  const CommandOutcome bySlot = run(supervisor, {"recycle", "shared/1", "--wait", "10s", "--json"});
  EXPECT_EQ(bySlot.exitCode, 0) << bySlot.errors;
  EXPECT_EQ(inJson(bySlot.output, "value"), "{'done': True, 'text': '1 worker replaced'}");
  const ipc::Report after = whenServing(supervisor, 2);
  EXPECT_NE(processOfSlot(after, 0), first);
  EXPECT_NE(processOfSlot(after, 1), processOfSlot(before, 1));
  EXPECT_EQ(after.recycled, 2u);
  EXPECT_EQ(after.restarts, 0u);
}

TEST(Recycle, OfAllReplacesAllThatServe) {
  const OwnSupervisor supervisor({"--workers", "3"});
  const ipc::Report before = whenServing(supervisor, 3);
  const CommandOutcome outcome = run(supervisor, {"recycle", "--all", "--wait", "10s"});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "3 workers replaced\n");
  const ipc::Report after = whenServing(supervisor, 3);
  for (const int32_t slot : {0, 1, 2}) {
    EXPECT_NE(processOfSlot(after, slot), processOfSlot(before, slot));
  }
  EXPECT_EQ(after.restarts, 0u);
}

TEST(Recycle, ThatTakesLongerThanItMayEndsWithOne) {
  const OwnSupervisor supervisor({"--workers", "1"});
  AttachedProgram program(supervisor.address(), "holder");  // does not release its worker
  expectRefused(run(supervisor, {"recycle", "--all", "--wait", "200ms"}),
                "1 worker not replaced yet after 200 ms");
}

TEST(Recycle, WithoutWaitEndsWhenItIsAccepted) {
  const OwnSupervisor supervisor({"--workers", "1"});
  whenServing(supervisor, 1);
  const CommandOutcome outcome = run(supervisor, {"recycle", "shared/0"});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  EXPECT_TRUE(has(outcome.output, "of shared pool will be replaced")) << outcome.output;
  supervisor.waitFor([](const ipc::Report& report) { return report.recycled == 1; });
  expectRefused(run(supervisor, {"recycle", "shared/7"}), "there is no slot shared/7");
}

TEST(Recycle, WithoutAWorkerOrWithTwoIsWrongUsage) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"recycle"},
                                             {"recycle", "--all", "4711"},
                                             {"recycle", "first"},
                                             {"recycle", "shared/"},
                                             {"recycle", "/0"},
                                             {"recycle", "--all", "--wait", "0"},
                                             {"recycle", "--all", "--wait", "soon"}}) {
    const CommandOutcome outcome = runCommand(wrong);
    EXPECT_EQ(outcome.exitCode, 2) << wrong.back();
    EXPECT_EQ(outcome.output, "");
    EXPECT_NE(outcome.errors, "");
  }
}

}  // namespace
}  // namespace isopool::tests
