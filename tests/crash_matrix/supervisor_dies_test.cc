// SPDX-License-Identifier: BSD-3-Clause
// A supervisor, its guardian or its zygote dies at each of its crash points while a program
// performs every operation. The program receives a documented outcome, and nothing of a supervisor
// is left.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "tests/client/harness.h"
#include "tests/crash_matrix/forked.h"
#include "tests/crash_matrix/points.h"
#include "tests/crash_matrix/program_life.h"
#include "tests/ipc/channel/peers.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

using ipc::CrashPoint;
using ipc::CrashPointOwner;

constexpr const char* kOfSupervisors = "ISOPOOL_SUPERVISOR_CRASH_POINT";
constexpr const char* kOfZygotes = "ISOPOOL_ZYGOTE_CRASH_POINT";
// Lives that run at the same time: most of a life is the start of Python, on one core.
constexpr size_t kAtATime = 2;

struct Death {
  CrashPoint point;
  uint32_t nth;
};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// The zygote among these processes, by its title; -1 if there is none.
pid_t zygoteAmong(const std::vector<pid_t>& processes) {
  const auto found = std::find_if(processes.begin(), processes.end(), [](pid_t each) {
    std::ifstream file("/proc/" + std::to_string(each) + "/cmdline", std::ios::binary);
    std::string title;
    return std::getline(file, title, '\0') && title == "isopool-worker: zygote";
  });
  return found == processes.end() ? -1 : *found;
}

/// Runs `one` for each death, kAtATime at a time, in processes of their own.
void inTurn(const std::vector<Death>& deaths, const std::function<void(const Death&)>& one) {
  packagePath();  // made once, not by each program
  std::vector<std::unique_ptr<Forked>> drivers;
  for (size_t driver = 0; driver < kAtATime; ++driver) {
    drivers.push_back(std::make_unique<Forked>([&, driver] {
      for (size_t i = driver; i < deaths.size(); i += kAtATime) {
        try {
          one(deaths[i]);
        } catch (const std::exception& error) {
          ADD_FAILURE() << requestFor(deaths[i].point, deaths[i].nth) << ": " << error.what();
        }
      }
    }));
  }
  for (const auto& driver : drivers) {
    const auto status = driver->waitForEnd(milliseconds(240'000));
    ASSERT_TRUE(status) << "the driver hangs";
    EXPECT_TRUE(wentWell(*status));
  }
}

/// Runs a program's life until it ends or the supervisor is lost; returns the operation in which
/// it ended.
Operation liveUntilTheEnd(const ProgramLife::MakeManager& makeManager, const std::string& log,
                          ProgramLife::End& end) {
  LifeProgress progress;
  ProgramLife life(makeManager, log, progress);
  const size_t descriptors = openDescriptors(::getpid());
  end = life.live();
  const Operation operation = progress.operation;
  if (end == ProgramLife::End::kSupervisorLost) {
    life.perform(Operation::kLeave);
    // The descriptors of the input arena stay.
    require(openDescriptors(::getpid()) <= descriptors + 4, "descriptors are left over");
  }
  life.checkLog();
  return operation;
}

std::string nameFor(const Death& death, const char* kind) {
  return testFolder() / (std::string(kind) + "-" + std::string(crashPointName(death.point)) + "-" +
                         std::to_string(death.nth));
}

/// A process of a private pool dies. `lifeGoesOn`: the program must not notice it.
void dieInAPrivatePool(const char* variable, const Death& death, bool lifeGoesOn) {
  const std::string name = nameFor(death, variable);
  const Trap trap(name + "-trap");
  const ProcessMark mark;
  SharedWithChildren<std::atomic<Operation>> where;
  trap.set(requestFor(death.point, death.nth));
  {
    Forked program([&] {
      const ScopedVariable marked(mark.variable());
      const ScopedVariable silent("ISOPOOL_LOG=off");
      const ScopedVariable trapped(std::string(variable) + "=" + trap.path());
      ProgramLife::End end{};
      *where = liveUntilTheEnd([] { return std::make_unique<InterpreterManager>(1); },
                               name + "-log", end);
      // The program makes no call after it has unloaded its last package.
      const bool mayBeWhole = lifeGoesOn || death.point == CrashPoint::kPackageForgotten;
      const bool mayBeLost = !lifeGoesOn;
      require(end == ProgramLife::End::kWhole ? mayBeWhole : mayBeLost,
              lifeGoesOn ? "its pool was lost" : "its supervisor died, and no error was reported");
    });
    const auto status = program.waitForEnd(milliseconds(60'000));
    require(status.has_value(), "the program hangs");
    require(wentWell(*status), "the program received an undocumented outcome");
  }
  require(mark.waitUntilNoneIsLeft(milliseconds(2000)), "processes are left over");
  require(waitUntil([&] { return trap.dead() != 0; }), "no process reached the point");
  noteDeath(death.point, *where);
}

/// The same with a shared supervisor. If the point is not reached while the program lives, the
/// supervisor receives SIGTERM.
void dieInASharedSupervisor(const char* variable, const Death& death, bool lifeGoesOn,
                            std::vector<std::string> flags = {}) {
  const std::string name = nameFor(death, variable) + "-shared";
  const Trap trap(name + "-trap");
  trap.set(requestFor(death.point, death.nth));
  const ScopedVariable trapped(std::string(variable) + "=" + trap.path());
  const ScopedVariable ends("ISOPOOL_RECONNECT=0");
  SharedWithChildren<std::atomic<Operation>> where;
  flags.insert(flags.begin(), {"--workers", "1"});
  tests::SharedSupervisor supervisor(flags);
  Forked program([&] {
    ProgramLife::End end{};
    *where = liveUntilTheEnd(
        [&] {
          return std::make_unique<InterpreterManager>(
              isopool::SharedSupervisor{supervisor.address()}, 1);
        },
        name + "-log", end);
    require(!lifeGoesOn || end == ProgramLife::End::kWhole, "its pool was lost");
  });
  const auto status = program.waitForEnd(milliseconds(60'000));
  require(status.has_value(), "the program hangs");
  require(wentWell(*status), "the program received an undocumented outcome");
  // Some points are reached only after SIGTERM.
  if (trap.dead() == 0) {
    *where = Operation::kDrain;
    supervisor.signal(SIGTERM);
  }
  require(lifeGoesOn || supervisor.waitForEnd().has_value(), "its guardian does not end");
  require(waitUntil([&] { return trap.dead() != 0; }, milliseconds(2000)),
          "not reached in a life that ended in " + std::string(operationName(*where)));
  noteDeath(death.point, *where);
}

bool contains(const std::vector<CrashPoint>& points, CrashPoint point) {
  return std::find(points.begin(), points.end(), point) != points.end();
}

/// The points that only a shared supervisor reaches.
const std::vector<CrashPoint> kOnlyShared{
    CrashPoint::kSupervisorListening, CrashPoint::kClientAccepted,   CrashPoint::kPackageHeldSent,
    CrashPoint::kDetachChannelSent,   CrashPoint::kAttachmentClosed, CrashPoint::kChannelClosedSent,
    CrashPoint::kClientForgotten,     CrashPoint::kDrainSent,        CrashPoint::kDrained,
    CrashPoint::kRetireWorkerSent,    CrashPoint::kSuccessorAsked,   CrashPoint::kServesSent,
    CrashPoint::kSuccessorSeen,       CrashPoint::kClientReleased,   CrashPoint::kPauseSent};
/// The points that need another program, another end or an operator: WhileAProgramIsAskedToGo has
/// the first two, AsAnOperatorWants the others.
const std::vector<CrashPoint> kElsewhere{CrashPoint::kDrainSent,      CrashPoint::kRetireWorkerSent,
                                         CrashPoint::kSuccessorAsked, CrashPoint::kServesSent,
                                         CrashPoint::kSuccessorSeen,  CrashPoint::kClientReleased,
                                         CrashPoint::kPauseSent};

TEST(SupervisorDies, OfAPrivatePoolAndNothingOfItIsLeft) {
  std::vector<Death> deaths;
  for (const CrashPoint point : pointsOf(CrashPointOwner::kSupervisor)) {
    if (!contains(kOnlyShared, point)) deaths.push_back({point, 1});
  }
  // Also the second time, for points that every life reaches again.
  for (const CrashPoint point :
       {CrashPoint::kForkRequestSent, CrashPoint::kWorkerIntroduced, CrashPoint::kAttachmentUsable,
        CrashPoint::kSpareAssigned, CrashPoint::kAddOutputSegmentSent}) {
    deaths.push_back({point, 2});
  }
  inTurn(deaths, [](const Death& death) {
    dieInAPrivatePool(kOfSupervisors, death, /*lifeGoesOn=*/false);
  });
}

TEST(SupervisorDies, AsAServiceAndNothingOfItIsLeft) {
  std::vector<Death> deaths;
  for (const CrashPoint point : pointsOf(CrashPointOwner::kSupervisor)) {
    // If a service dies before it can be reached, the test waits long.
    if (point == CrashPoint::kSupervisorGuarded || contains(kElsewhere, point)) continue;
    deaths.push_back({point, 1});
  }
  inTurn(deaths, [](const Death& death) {
    dieInASharedSupervisor(kOfSupervisors, death, /*lifeGoesOn=*/false);
  });
}

/// The program stays attached while the supervisor drains or replaces its worker.
TEST(SupervisorDies, WhileAProgramIsAskedToGo) {
  inTurn({{CrashPoint::kDrainSent, 1}, {CrashPoint::kRetireWorkerSent, 1}}, [](const Death& death) {
    const bool drained = death.point == CrashPoint::kDrainSent;
    const Trap trap(nameFor(death, "asked") + "-trap");
    trap.set(requestFor(death.point, death.nth));
    const ScopedVariable trapped(std::string(kOfSupervisors) + "=" + trap.path());
    std::vector<std::string> flags{"--workers", "1"};
    if (!drained) flags.insert(flags.end(), {"--recycle-calls", "20"});
    tests::SharedSupervisor supervisor(flags);
    const ScopedVariable ends("ISOPOOL_RECONNECT=0");
    SharedWithChildren<LifeProgress> progress;
    Forked program([&] {
      ProgramLife life(
          [&] {
            return std::make_unique<InterpreterManager>(
                isopool::SharedSupervisor{supervisor.address()}, 1);
          },
          nameFor(death, "asked") + "-log", *progress);
      life.perform(Operation::kOpen);
      life.perform(Operation::kLoad);
      progress->over = true;
      auto outcome = ProgramLife::Outcome::kAnswered;
      while (outcome == ProgramLife::Outcome::kAnswered) {
        outcome = life.perform(Operation::kInlineCall);
      }
      require(outcome == ProgramLife::Outcome::kSupervisorLost, life.loss());
      life.checkLog();
    });
    require(waitUntil([&] { return progress->over.load(); }, kStartPatience), "it never called");
    if (drained) supervisor.signal(SIGTERM);
    const auto status = program.waitForEnd(milliseconds(10'000));
    require(status && wentWell(*status), "the program received an undocumented outcome");
    // The message that ended the program was sent just before the point.
    require(waitUntil([&] { return trap.dead() != 0; }), "no process reached the point");
    noteDeath(death.point, drained ? Operation::kDrain : Operation::kRelief);
  });
}

/// An operator restarts the supervisor, or pauses the program. The supervisor, its successor or
/// their guardian dies, and the program receives a documented outcome;
/// tests/supervisor/succession_test.cc shows that the address is served afterwards, or the service
/// has ended.
TEST(SupervisorDies, AsAnOperatorWants) {
  inTurn({{CrashPoint::kSuccessorAsked, 1},
          {CrashPoint::kSuccessorSpawned, 1},
          {CrashPoint::kServesSent, 1},
          {CrashPoint::kSuccessorAnnounced, 1},
          {CrashPoint::kSuccessorSeen, 1},
          {CrashPoint::kClientReleased, 1},
          {CrashPoint::kPauseSent, 1}},
         [](const Death& death) {
           const Trap trap(nameFor(death, "operated") + "-trap");
           const ScopedVariable trapped(std::string(kOfSupervisors) + "=" + trap.path());
           // The first process that finds the request takes it: this point is of the successor.
           const bool ofSuccessor = death.point == CrashPoint::kServesSent;
           if (!ofSuccessor) trap.set(requestFor(death.point, death.nth));
           tests::SharedSupervisor supervisor({"--workers", "1"});
           const ScopedVariable ends("ISOPOOL_RECONNECT=0");
           SharedWithChildren<LifeProgress> progress;
           Forked program([&] {
             ProgramLife life(
                 [&] {
                   return std::make_unique<InterpreterManager>(
                       isopool::SharedSupervisor{supervisor.address()}, 1);
                 },
                 nameFor(death, "operated") + "-log", *progress);
             life.perform(Operation::kOpen);
             life.perform(Operation::kLoad);
             progress->over = true;
             auto outcome = ProgramLife::Outcome::kAnswered;
             while (outcome == ProgramLife::Outcome::kAnswered) {
               outcome = life.perform(Operation::kInlineCall);
             }
             require(outcome == ProgramLife::Outcome::kSupervisorLost, life.loss());
             life.checkLog();
           });
           require(waitUntil([&] { return progress->over.load(); }, kStartPatience),
                   "it never called");
           if (ofSuccessor) trap.set(requestFor(death.point, death.nth));
           if (death.point == CrashPoint::kPauseSent) {
             supervisor.request(ipc::Action::kPauseClient,
                                supervisor.report().clients.at(0).number);
           } else {
             supervisor.request(ipc::Action::kRestart);
           }
           const auto status = program.waitForEnd(milliseconds(30'000));
           require(status && wentWell(*status), "the program received an undocumented outcome");
           require(waitUntil([&] { return trap.dead() != 0; }), "no process reached the point");
           noteDeath(death.point, Operation::kDrain);
         });
}

TEST(GuardianDies, OfAPrivatePoolWhichGoesOn) {
  inTurn({{CrashPoint::kGuardianWatching, 1}},
         [](const Death& death) { dieInAPrivatePool(kOfSupervisors, death, /*lifeGoesOn=*/true); });
}

TEST(GuardianDies, NothingIsLeftOfItsDeadSupervisor) {
  // In the private pool, the supervisor ends with its program.
  inTurn({{CrashPoint::kSupervisorDeathSeen, 1}}, [](const Death& death) {
    dieInAPrivatePool(kOfSupervisors, death, /*lifeGoesOn=*/true);
    dieInASharedSupervisor(kOfSupervisors, death, /*lifeGoesOn=*/false);
  });
}

TEST(ZygoteDies, TheProgramDoesNotNotice) {
  std::vector<Death> deaths;
  for (const CrashPoint point : pointsOf(CrashPointOwner::kZygote)) {
    if (point == CrashPoint::kWorkerForkedBetween) continue;  // no zygote dies there
    deaths.push_back({point, 1});
    // A zygote becomes ready only once.
    if (point != CrashPoint::kZygoteReadySent) deaths.push_back({point, 2});
  }
  inTurn(deaths, [](const Death& death) {
    dieInAPrivatePool(kOfZygotes, death, /*lifeGoesOn=*/true);
    if (death.nth == 1) dieInASharedSupervisor(kOfZygotes, death, /*lifeGoesOn=*/true);
  });
}

/// The process between zygote and worker leaves a worker that is unknown to both, which must
/// not stay, and perhaps locks in the zygote's memory, which must not be forked again.
TEST(ZygoteDies, DeathOfItsForkingProcessIsNotNoticed) {
  inTurn({{CrashPoint::kWorkerForkedBetween, 1}}, [](const Death& death) {
    const std::string name = nameFor(death, "between");
    const Trap trap(name + "-trap");
    const ProcessMark mark;
    const ScopedVariable marked(mark.variable());
    const ScopedVariable silent("ISOPOOL_LOG=off");
    const ScopedVariable trapped(std::string(kOfZygotes) + "=" + trap.path());
    LifeProgress progress;
    ProgramLife life([] { return std::make_unique<InterpreterManager>(1); }, name + "-log",
                     progress);
    life.perform(Operation::kOpen);
    life.perform(Operation::kLoad);
    // Guardian, supervisor, zygote, worker, and the spare, which comes last.
    constexpr size_t kWhole = 5;
    require(waitUntil([&] { return mark.processes().size() == kWhole; }), "the pool is not whole");
    const pid_t zygote = zygoteAmong(mark.processes());
    require(zygote > 0, "no process has the title of a zygote");
    trap.set(requestFor(death.point, death.nth));
    for (int i = 0; i < 2; ++i) {
      require(life.perform(Operation::kWorkerDeath) == ProgramLife::Outcome::kAnswered,
              "a call that had not started was lost");
    }
    require(waitUntil([&] { return trap.dead() != 0; }), "no process reached the point");
    noteDeath(death.point, Operation::kWorkerDeath);
    require(life.perform(Operation::kInlineCall) == ProgramLife::Outcome::kAnswered, "no answer");
    require(waitUntil([&] { return mark.processes().size() == kWhole; }),
            "processes are left over, or missing");
    const pid_t next = zygoteAmong(mark.processes());
    require(next > 0 && next != zygote, "the zygote goes on");
    life.perform(Operation::kLeave);
    life.checkLog();
    require(mark.waitUntilNoneIsLeft(milliseconds(2000)), "processes are left over");
  });
}

}  // namespace
}  // namespace isopool::tests
