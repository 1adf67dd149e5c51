// SPDX-License-Identifier: BSD-3-Clause
// A worker dies at each of its crash points, in each operation of a program that reaches the
// point, the first time and the second. The program receives the documented outcome, and the next
// worker answers.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

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

constexpr milliseconds kLongTime(240'000);

/// How often the call that arms the point passes the point itself on its way back.
uint32_t passedWhileArming(CrashPoint point) {
  switch (point) {
    case CrashPoint::kCallReturned:
    case CrashPoint::kResultExported:
    case CrashPoint::kCompletionCounted:
    case CrashPoint::kCompletionSlotWritten:
    case CrashPoint::kCompletionTailStored:
    case CrashPoint::kCompletionWoken:
    case CrashPoint::kStatusPageIdleStored:
      return 1;
    default:
      return 0;
  }
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

bool isDead(pid_t pid) { return waitUntilDead(pid, milliseconds(0)); }

/// One program whose worker dies repeatedly.
class Sufferer {
 public:
  Sufferer(ProgramLife::MakeManager makeManager, const std::string& name,
           std::function<bool()> neighbourGoesOn)
      : life_(std::move(makeManager), testFolder() / name, progress_),
        neighbourGoesOn_(std::move(neighbourGoesOn)) {
    require(life_.perform(Operation::kOpen) == ProgramLife::Outcome::kAnswered, "no pool");
    require(life_.perform(Operation::kLoad) == ProgramLife::Outcome::kAnswered, "no model");
  }

  /// Lets the worker die at all points in all operations.
  void sufferAll() {
    for (const CrashPoint point : pointsOf(CrashPointOwner::kWorker)) {
      for (const Operation operation :
           {Operation::kInlineCall, Operation::kCopiedCall, Operation::kSharedCall,
            Operation::kKeptCall, Operation::kLargeResult, Operation::kLongWords,
            Operation::kSession, Operation::kRecall, Operation::kPackage}) {
        const bool reached = suffer(point, 1, operation);
        if (reached) suffer(point, 2, operation);
      }
    }
    for (const CrashPoint point :
         {CrashPoint::kInputSegmentLeft, CrashPoint::kInputSegmentUnmappedSent,
          CrashPoint::kOutputSegmentRetired}) {
      require(suffer(point, 1, Operation::kTrim), requestFor(point, 1) + ": no segment is retired");
      suffer(point, 2, Operation::kTrim);
    }
  }

  /// Kills the worker; its replacement dies at the point while it starts.
  void loseAtBirth(CrashPoint point, uint32_t nth, const Trap& trap) {
    const std::string what = requestFor(point, nth) + " at birth";
    trap.set(requestFor(point, nth));
    ::kill(life_.worker(), SIGKILL);
    require(waitUntil([&] { return trap.dead() != 0; }), what + ": no process reached the point");
    noteDeath(point, Operation::kStart);
    expectWhole(what);
    trap.clear();
  }

  void expectWhole(const std::string& what) {
    require(life_.worker() > 0, what + ": no worker answers");
    require(neighbourGoesOn_(), what + ": the neighbour does not go on");
  }
  ProgramLife& life() { return life_; }

 private:
  // True if the worker died.
  bool suffer(CrashPoint point, uint32_t nth, Operation operation) {
    const std::string what =
        requestFor(point, nth) + " in " + std::string(operationName(operation));
    const pid_t victim = life_.worker();
    // A package is unmapped when the supervisor's message arrives, and no call waits for that.
    const bool comesLater =
        operation == Operation::kTrim ||
        (operation == Operation::kPackage && point == CrashPoint::kPackageUnmapped);
    if (arm(point, nth + passedWhileArming(point))) {
      for (uint32_t i = 0; i < 2 && !isDead(victim); ++i) {
        const auto outcome = life_.perform(operation);
        require(outcome != ProgramLife::Outcome::kSupervisorLost, what + ": lost the supervisor");
        require(outcome == ProgramLife::Outcome::kAnswered || isDead(victim) ||
                    waitUntilDead(victim, milliseconds(1000)),
                what + ": lost a worker that lives");
        if (comesLater) waitUntilDead(victim, milliseconds(500));
      }
      // Disarms the point, unless the worker reaches it in this call or while it sleeps.
      if (!isDead(victim)) arm(point, 1u << 30);
    }
    if (!isDead(victim)) return false;
    noteDeath(point, operation);
    expectWhole(what);
    require(life_.worker() != victim, what + ": a dead worker answers");
    return true;
  }

  // False if the worker died while it answered the arming call.
  bool arm(CrashPoint point, uint32_t nth) {
    try {
      life_.object()({"arm", std::string(ipc::crashPointName(point)), static_cast<int64_t>(nth)});
      return true;
    } catch (const WorkerLost&) {
      return false;
    }
  }

  LifeProgress progress_;
  ProgramLife life_;
  const std::function<bool()> neighbourGoesOn_;
};

/// The points of a worker before its first call, in their order.
const CrashPoint kBirth[] = {CrashPoint::kWorkerForked,        CrashPoint::kWorkerSetUp,
                             CrashPoint::kWorkerSandboxed,     CrashPoint::kStatusPageSealed,
                             CrashPoint::kWorkerReady,         CrashPoint::kWorkerSegmentSealed,
                             CrashPoint::kChannelMapped,       CrashPoint::kOutputSegmentAdded,
                             CrashPoint::kLivenessWordHeld,    CrashPoint::kChannelAttached,
                             CrashPoint::kChannelAttachedSent, CrashPoint::kInputSegmentMapped,
                             CrashPoint::kPackageMapped};

/// A second pool of the same program, whose worker is not killed: none of its calls may fail.
class Bystander {
 public:
  Bystander() : manager_(1), object_(load(manager_)) {
    thread_ = std::thread([this] {
      try {
        while (!stop_) {
          const double value = static_cast<double>(answers_.load());
          const at::Tensor y = object_({"add_one", at::full({64}, value)}).toTensor();
          require(y.eq(value + 1).all().item<bool>(), "wrong bytes for the bystander");
          ++answers_;
          ::poll(nullptr, 0, 1);
        }
      } catch (const std::exception& error) {
        std::fprintf(stderr, "the bystander: %s\n", error.what());
      }
    });
  }
  ~Bystander() {
    stop_ = true;
    thread_.join();
  }
  bool goesOn() {
    const uint64_t before = answers_;
    return waitUntil([&] { return answers_ >= before + 2; });
  }

 private:
  static ReplicatedObj load(InterpreterManager& manager) {
    return manager.loadPackage(packagePath()).loadPickle("model", "model.pkl");
  }

  InterpreterManager manager_;
  const ReplicatedObj object_;
  std::atomic<uint64_t> answers_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void expectWell(const std::function<void()>& life) {
  packagePath();  // made once, not by each program
  Forked program(life);
  const auto status = program.waitForEnd(kLongTime);
  ASSERT_TRUE(status) << "the program hangs";
  EXPECT_TRUE(wentWell(*status));
}

TEST(WorkerDies, CallersOfAPrivatePoolKnowWhatRan) {
  expectWell([] {
    const ProcessMark mark;
    const Trap trap(testFolder() / "trap-private");
    const ScopedVariable marked(mark.variable());
    const ScopedVariable trapped("ISOPOOL_CRASH_POINT=" + trap.path());
    const ScopedVariable limit("ISOPOOL_RESTART_LIMIT=1000");
    const ScopedVariable silent("ISOPOOL_LOG=off");
    {
      Bystander bystander;
      Sufferer sufferer([] { return std::make_unique<InterpreterManager>(1); }, "private",
                        [&] { return bystander.goesOn(); });
      // Guardian, supervisor, zygote, both pools' workers, and the spare, which comes last.
      constexpr size_t kWhole = 6;
      require(waitUntil([&] { return mark.processes().size() == kWhole; }),
              "the pools are not whole");
      sufferer.sufferAll();
      for (const CrashPoint point : kBirth) sufferer.loseAtBirth(point, 1, trap);
      require(waitUntil([&] { return mark.processes().size() == kWhole; }),
              "processes are left over, or missing");
      const size_t descriptors = openDescriptors(::getpid());
      for (int i = 0; i < 3; ++i) sufferer.life().perform(Operation::kWorkerDeath);
      require(waitUntil([&] { return openDescriptors(::getpid()) <= descriptors + 2; }),
              "descriptors of dead workers are left over");
      sufferer.life().checkLog();
    }
    require(mark.waitUntilNoneIsLeft(milliseconds(2000)), "processes are left over");
  });
}

TEST(WorkerDies, CallersOfASharedSupervisorKnowWhatRan) {
  packagePath();  // made once, not by each program
  const Trap trap(testFolder() / "trap-shared");
  const ScopedVariable trapped("ISOPOOL_CRASH_POINT=" + trap.path());
  tests::SharedSupervisor supervisor(
      {"--workers", "2", "--restart-limit", "1000", "--grace", "100ms"});
  Neighbour neighbour(supervisor.address());
  ASSERT_TRUE(neighbour.hasCome());
  expectWell([&] {
    const auto attach = [&] {
      return std::make_unique<InterpreterManager>(isopool::SharedSupervisor{supervisor.address()},
                                                  1);
    };
    Sufferer sufferer(attach, "shared", [&] { return neighbour.goesOn(); });
    sufferer.sufferAll();
    // The worker dies when it attaches the second of its two clients.
    for (const CrashPoint point : {CrashPoint::kWorkerSegmentSealed, CrashPoint::kLivenessWordHeld,
                                   CrashPoint::kChannelAttachedSent}) {
      sufferer.loseAtBirth(point, 2, trap);
    }
    // The worker dies while it detaches a guest that leaves.
    for (const CrashPoint point :
         {CrashPoint::kStatusPageBooksStored, CrashPoint::kClientObjectsDropped,
          CrashPoint::kKeptMemoryPrivatised, CrashPoint::kOutputSegmentsLeft,
          CrashPoint::kChannelDetached, CrashPoint::kChannelDetachedSent}) {
      LifeProgress progress;
      ProgramLife guest(attach, testFolder() / "guest", progress);
      guest.perform(Operation::kOpen);
      guest.perform(Operation::kLoad);
      guest.object()({"keep", empty({8192}).fill_(1)});
      const pid_t victim = guest.worker();
      guest.object()({"arm", std::string(ipc::crashPointName(point)), 1});
      require(guest.perform(Operation::kLeave) == ProgramLife::Outcome::kAnswered, "did not leave");
      require(waitUntilDead(victim, milliseconds(2000)),
              requestFor(point, 1) + ": the worker lives on");
      noteDeath(point, Operation::kLeave);
      sufferer.expectWhole(requestFor(point, 1) + " in leave");
    }
    sufferer.life().checkLog();
  });
  EXPECT_TRUE(neighbour.goesOn());
  EXPECT_TRUE(supervisor.waitForReport(
      [](const ipc::Report& report) { return report.clients.size() == 1; }));
  EXPECT_TRUE(neighbour.leaves());
}

}  // namespace
}  // namespace isopool::tests
