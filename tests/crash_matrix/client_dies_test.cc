// SPDX-License-Identifier: BSD-3-Clause
// A program that performs every operation dies at every crash point of the client's library, the
// first, second, ... time that it reaches the point. Its neighbour and its supervisor continue as
// if it had left.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ipc/control/operator_messages.h"
#include "tests/client/harness.h"
#include "tests/crash_matrix/forked.h"
#include "tests/crash_matrix/neighbour.h"
#include "tests/crash_matrix/points.h"
#include "tests/crash_matrix/program_life.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

using ipc::CrashPoint;
using ipc::CrashPointOwner;

constexpr const char* kVariable = "ISOPOOL_CLIENT_CRASH_POINT";

/// Every time up to the sixth, then with growing distances.
uint32_t nextTime(uint32_t nth) { return nth < 6 ? nth + 1 : nth + nth / 2; }

/// True if no number occurs twice: at-most-once also holds for calls whose caller is dead.
bool noCallRanTwice(const std::string& log) {
  std::ifstream file(log);
  std::set<int64_t> seen;
  for (int64_t number = 0; file >> number;) {
    if (!seen.insert(number).second) return false;
  }
  return true;
}

constexpr size_t kWorkersAndSpare = 3;

/// True if only the neighbour is attached, to every worker and the spare, and no worker
/// is starting.
bool isAtRest(const ipc::Report& report) {
  return report.clients.size() == 1 && report.workers.size() == kWorkersAndSpare &&
         std::all_of(report.workers.begin(), report.workers.end(), [](const auto& worker) {
           return (worker.state == "serving" || worker.state == "spare") && worker.clients == 1;
         });
}

std::string textOf(const ipc::Report& report) {
  std::string text = std::to_string(report.sharedBytes) + " bytes of shared memory;";
  for (const ipc::ReportedClient& client : report.clients) {
    text += " client " + std::to_string(client.number) + " " + client.state + " inputs " +
            std::to_string(client.inputBytes) + " outputs " + std::to_string(client.outputBytes) +
            ",";
  }
  for (const ipc::ReportedWorker& worker : report.workers) {
    text += " worker " + std::to_string(worker.epoch) + " " + worker.state + " of " +
            std::to_string(worker.clients) + " clients, outputs " +
            std::to_string(worker.outputBytes) + ",";
  }
  return text;
}

/// The number of memory objects of this kind that a process has mapped.
size_t mappedObjects(pid_t pid, const std::string& label) {
  std::set<std::string> inodes;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(label) == std::string::npos) continue;
    std::istringstream fields(line);
    std::string range, access, offset, device, inode;
    fields >> range >> access >> offset >> device >> inode;
    inodes.insert(inode);
  }
  return inodes.size();
}

class ClientDies : public ::testing::Test {
 protected:
  ClientDies() { packagePath(); }  // made once, not by each program

  /// Runs a program that is to die at that point; true if it did.
  bool dies(CrashPoint point, uint32_t nth, const ProgramLife::MakeManager& makeManager) {
    const std::string log = testFolder() / ("client-" + std::to_string(++lives_));
    progress_->operation = Operation::kStart;
    Forked program([&] {
      ::setenv(kVariable, requestFor(point, nth).c_str(), 1);
      ProgramLife life(makeManager, log, *progress_);
      const auto end = life.live();
      if (end != ProgramLife::End::kWhole) throw std::runtime_error("lost its supervisor");
      life.checkLog();
    });
    const auto status = program.waitForEnd(milliseconds(30'000));
    EXPECT_TRUE(status) << "the program hangs";
    EXPECT_TRUE(noCallRanTwice(log));
    if (!status) return false;
    if (!wasKilled(*status)) {
      EXPECT_TRUE(wentWell(*status));
      return false;
    }
    noteDeath(point, progress_->operation);
    return true;
  }

  SharedWithChildren<LifeProgress> progress_;
  static inline int lives_ = 0;  // over all tests: each life has a log of its own
};

TEST_F(ClientDies, ItsNeighbourIsNotHarmed) {
  tests::SharedSupervisor supervisor(
      {"--workers", "2", "--grace", "100ms", "--restart-limit", "1000"});
  Neighbour neighbour(supervisor.address());
  ASSERT_TRUE(neighbour.hasCome());
  const auto attach = [&] {
    return std::make_unique<InterpreterManager>(isopool::SharedSupervisor{supervisor.address()}, 1);
  };
  // A complete life. The state after it is the reference for the state after the others.
  EXPECT_FALSE(dies(CrashPoint::kSupervisorStarted, 1, attach));
  ASSERT_TRUE(supervisor.waitForReport(isAtRest)) << textOf(supervisor.report());
  const pid_t process = supervisor.supervisorPid();
  // The supervisor creates the memory sets for the next workers in the background.
  ASSERT_TRUE(
      waitUntil([&] { return descriptorsCalled(process, "isopool:client") >= kWorkersAndSpare; }));
  const uint64_t bytes = supervisor.report().sharedBytes;
  const size_t descriptors = openDescriptors(process);

  for (const CrashPoint point : pointsOf(CrashPointOwner::kClient)) {
    for (uint32_t nth = 1; nth < 60 && dies(point, nth, attach); nth = nextTime(nth)) {
      ASSERT_TRUE(neighbour.goesOn()) << requestFor(point, nth);
      ASSERT_TRUE(supervisor.waitForReport(isAtRest))
          << requestFor(point, nth) << ": " << textOf(supervisor.report());
      // The additional descriptor is the connection that asks for the report.
      ASSERT_TRUE(waitUntil([&] { return openDescriptors(process) <= descriptors + 1; }))
          << requestFor(point, nth) << ": " << openDescriptors(process) << " descriptors, before "
          << descriptors;
    }
    ASSERT_FALSE(HasFailure()) << crashPointName(point);
  }
  EXPECT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
    return isAtRest(report) && report.sharedBytes <= bytes;
  })) << textOf(supervisor.report())
      << " before " << bytes;
  for (const ipc::ReportedWorker& worker : supervisor.report().workers) {
    EXPECT_LE(mappedObjects(worker.processId, "isopool:worker"), 1u) << "channels of dead clients";
    EXPECT_LE(mappedObjects(worker.processId, "isopool:client"), 1u) << "channels of dead clients";
  }
  EXPECT_TRUE(neighbour.leaves());
}

TEST_F(ClientDies, ItsPrivateSupervisorEndsToo) {
  for (const CrashPoint point :
       {CrashPoint::kSupervisorStarted, CrashPoint::kHelloSent, CrashPoint::kWelcomeReceived,
        CrashPoint::kPoolOpened, CrashPoint::kChannelMappedSent, CrashPoint::kPackageDeclared,
        CrashPoint::kSubmissionTailStored, CrashPoint::kDeathReported, CrashPoint::kDeathTold,
        CrashPoint::kPoolClosed}) {
    const ProcessMark mark;
    const ScopedVariable variable(mark.variable());
    const ScopedVariable silent("ISOPOOL_LOG=off");
    EXPECT_TRUE(dies(point, 1, [] { return std::make_unique<InterpreterManager>(1); }))
        << crashPointName(point);
    EXPECT_TRUE(mark.waitUntilNoneIsLeft(milliseconds(2000)))
        << crashPointName(point) << ": processes are left over";
  }
}

/// Crash points that a program reaches only when its supervisor ends or replaces a worker.
class ClientDiesOf : public ClientDies {
 protected:
  /// `provoke` makes the supervisor cause the event after the program has made calls.
  void dieOf(CrashPoint point, Operation operation, const std::vector<std::string>& flags,
             const std::function<void(tests::SharedSupervisor&)>& provoke) {
    tests::SharedSupervisor supervisor(flags);
    const std::string log = testFolder() / (std::string(crashPointName(point)) + "-log");
    Forked program([&] {
      ::setenv(kVariable, requestFor(point, 1).c_str(), 1);
      ProgramLife life(
          [&] {
            return std::make_unique<InterpreterManager>(
                isopool::SharedSupervisor{supervisor.address()}, 1);
          },
          log, *progress_);
      life.perform(Operation::kOpen);
      life.perform(Operation::kLoad);
      progress_->over = true;
      // Calls until it is killed. A call that fails because the supervisor ends is not an
      // error here.
      for (;;) life.perform(Operation::kInlineCall);
    });
    ASSERT_TRUE(waitUntil([&] { return progress_->over.load(); }, kStartPatience));
    provoke(supervisor);
    const auto status = program.waitForEnd(milliseconds(10'000));
    ASSERT_TRUE(status) << "the program never reached the point";
    EXPECT_TRUE(wasKilled(*status));
    noteDeath(point, operation);
    EXPECT_TRUE(noCallRanTwice(log));
  }
};

TEST_F(ClientDiesOf, TheDrainOfItsSupervisorWhichEndsAllTheSame) {
  dieOf(CrashPoint::kDrainAcknowledged, Operation::kDrain, {"--workers", "1"},
        [](tests::SharedSupervisor& supervisor) {
          supervisor.signal(SIGTERM);
          EXPECT_EQ(supervisor.waitForEnd(), 0);
        });
}

TEST_F(ClientDiesOf, TheLossOfItsSupervisor) {
  dieOf(CrashPoint::kSupervisorLossSeen, Operation::kDrain, {"--workers", "1"},
        [](tests::SharedSupervisor& supervisor) { supervisor.signal(SIGKILL); });
}

TEST_F(ClientDiesOf, TheReliefOfItsWorker) {
  dieOf(CrashPoint::kWorkerReleaseSent, Operation::kRelief,
        {"--workers", "1", "--recycle-calls", "20"}, [](tests::SharedSupervisor&) {});
}

}  // namespace
}  // namespace isopool::tests
