// SPDX-License-Identifier: BSD-3-Clause
// A shared worker reads no message while it runs a call of one program. It must not be killed for
// what other programs do meanwhile, nor if the supervisor lacks descriptors.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "ipc/control/client_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

/// A program whose call runs on the only worker until endCall().
class BusyWorker {
 public:
  explicit BusyWorker(const SharedSupervisor& supervisor)
      : path_(supervisor.folder() + "/end"), caller_(supervisor.attachWithPool(1, "caller")) {
    epoch_ = caller_->serving(1, 0);
    caller_->post(epoch_, "!await " + path_);
    EXPECT_TRUE(caller_->waitFor([&] { return caller_->worker(epoch_).end->hasStarted(1); }));
  }

  uint64_t epoch() const { return epoch_; }
  ControlClient& caller() { return *caller_; }
  bool lost() { return caller_->worker(epoch_).died || caller_->serving(1, 0) != epoch_; }
  /// Ends the call; true if its completion arrives within 20 s.
  bool endCall() {
    std::ofstream(path_) << "";
    return caller_->waitFor([&] { return caller_->worker(epoch_).end->completionReady(); },
                            milliseconds(20'000));
  }

 private:
  const std::string path_;
  const std::unique_ptr<ControlClient> caller_;
  uint64_t epoch_ = 0;
};

base::Fd segmentOf(size_t bytes) { return ipc::createMemoryObject("isopool-test-segment", bytes); }

/// A program with a new pool that the worker has not been informed of.
std::unique_ptr<ControlClient> comeToBusyWorker(const SharedSupervisor& supervisor,
                                                const std::string& name) {
  auto client = supervisor.attach(name);
  client->send(ipc::OpenPool{1, 1});
  EXPECT_TRUE(client->waitFor([&] { return !client->workers().empty(); }));
  return client;
}

/// Returns the previous limit.
rlim_t limitFilesOf(pid_t process, rlim_t files) {
  rlimit limit{};
  EXPECT_EQ(::prlimit(process, RLIMIT_NOFILE, nullptr, &limit), 0);
  const rlim_t before = std::exchange(limit.rlim_cur, files);
  EXPECT_EQ(::prlimit(process, RLIMIT_NOFILE, &limit, nullptr), 0);
  return before;
}

TEST(BusyWorkers, AreNotTimedOutWhileACallRuns) {
  SharedSupervisor supervisor({"--workers", "1", "--spares", "0", "--worker-timeout", "1s"});
  BusyWorker busy(supervisor);
  const auto coming = comeToBusyWorker(supervisor, "coming");
  EXPECT_FALSE(busy.caller().waitFor([&] { return busy.lost(); }, milliseconds(2500)))
      << supervisor.log();
  EXPECT_TRUE(busy.endCall()) << supervisor.log();
  ASSERT_TRUE(coming->waitForPool(1, 1));
  EXPECT_EQ(coming->serving(1, 0), busy.epoch());
  EXPECT_EQ(coming->call(busy.epoch(), "served"), "served");
  EXPECT_EQ(supervisor.report().restarts, 0u) << supervisor.log();
}

TEST(BusyWorkers, StoppedIdleWorkerIsReplaced) {
  SharedSupervisor supervisor({"--workers", "1", "--spares", "0", "--worker-timeout", "1s"});
  const auto first = supervisor.attachWithPool(1, "first");
  const uint64_t worker = first->serving(1, 0);
  ASSERT_EQ(::kill(first->worker(worker).introduction.processId, SIGSTOP), 0);
  const auto coming = comeToBusyWorker(supervisor, "coming");
  ASSERT_TRUE(
      coming->waitFor([&] { return coming->serving(1, 0) != 0 && coming->serving(1, 0) != worker; },
                      milliseconds(20'000)));
  EXPECT_EQ(coming->call(coming->serving(1, 0), "served"), "served");
  EXPECT_TRUE(first->waitFor([&] {
    return supervisor.log().find("to attach a channel (ISOPOOL_WORKER_TIMEOUT)") !=
           std::string::npos;
  })) << supervisor.log();
}

TEST(BusyWorkers, SurviveAFloodOfRefusedSegments) {
  SharedSupervisor supervisor(
      {"--workers", "1", "--spares", "0", "--output-arena", "64KiB", "--client-memory", "1MiB"});
  const auto greedy = supervisor.attachWithPool(1, "greedy");
  BusyWorker busy(supervisor);
  const base::Fd large = segmentOf(2 << 20);
  for (uint32_t number = 1; number <= 20'000; ++number) {
    greedy->send(ipc::DeclareInputSegment{number, 2 << 20}, {large.get()});
  }
  EXPECT_TRUE(greedy->waitForEnd(milliseconds(20'000)));
  EXPECT_NE(greedy->failure().value_or("").find("limits.memory"), std::string::npos);
  EXPECT_TRUE(busy.endCall()) << supervisor.log();
  EXPECT_EQ(supervisor.report().restarts, 0u) << supervisor.log();
  const std::string log = supervisor.log();
  EXPECT_NE(log.find("(greedy, pid"), std::string::npos) << log;
}

TEST(BusyWorkers, OutliveManyProgramsThatComeWithSegmentsStayOrLeave) {
  SharedSupervisor supervisor({"--workers", "1", "--spares", "0", "--output-arena", "64KiB",
                               "--client-memory", "1MiB", "--grace", "100ms"});
  BusyWorker busy(supervisor);
  const base::Fd small = segmentOf(ipc::kPageBytes);
  const base::Fd large = segmentOf(2 << 20);
  std::vector<std::unique_ptr<ControlClient>> staying;
  for (int i = 0; i < 24 && !busy.lost(); ++i) {
    auto client = comeToBusyWorker(supervisor, "coming");
    for (uint32_t number = 1; number <= 900; ++number) {
      const bool fits = number <= 100;
      client->send(ipc::DeclareInputSegment{number, fits ? ipc::kPageBytes : size_t{2} << 20},
                   {fits ? small.get() : large.get()});
    }
    client->statistics();
    busy.caller().statistics();
    if (i % 2 == 0) staying.push_back(std::move(client));
  }
  EXPECT_TRUE(busy.endCall()) << supervisor.log();
  EXPECT_EQ(supervisor.report().restarts, 0u) << supervisor.log();
  for (const auto& client : staying) {
    ASSERT_TRUE(client->waitForPool(1, 1)) << supervisor.log();
    std::string inputs;
    EXPECT_TRUE(client->waitFor([&] {
      inputs = client->call(busy.epoch(), "!inputs").value_or("no answer");
      return inputs == "100 mapped, 800 refused";
    })) << inputs;
  }
}

TEST(BusyWorkers, WaitWhileTheSupervisorLacksDescriptors) {
  SharedSupervisor supervisor({"--workers", "1", "--spares", "0"});
  const auto sender = supervisor.attachWithPool(1, "sender");
  BusyWorker busy(supervisor);
  const auto coming = supervisor.attach("coming");
  coming->answersIntroductions = false;
  coming->send(ipc::OpenPool{1, 1});
  ASSERT_TRUE(coming->waitFor([&] { return !coming->workers().empty(); }));
  // Fills the socket to the worker: later messages wait in a queue, with duplicates of
  // their descriptors.
  const base::Fd object = segmentOf(ipc::kPageBytes);
  for (uint32_t number = 1; number <= 2000; ++number) {
    sender->send(ipc::DeclareInputSegment{number, ipc::kPageBytes}, {object.get()});
  }
  sender->statistics();
  const pid_t process = supervisor.supervisorPid();
  const rlim_t files = limitFilesOf(process, 8);
  ipc::sealMemoryObject(coming->worker(busy.epoch()).clientControl, ipc::Seal::kSingleWriter);
  coming->send(ipc::ChannelMapped{busy.epoch()});
  coming->statistics();
  limitFilesOf(process, files);
  EXPECT_TRUE(busy.endCall()) << supervisor.log();
  ASSERT_TRUE(coming->waitForPool(1, 1)) << supervisor.log();
  EXPECT_EQ(coming->call(busy.epoch(), "served"), "served");
  EXPECT_EQ(supervisor.report().restarts, 0u) << supervisor.log();
}

}  // namespace
}  // namespace isopool::tests
