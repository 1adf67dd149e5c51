// SPDX-License-Identifier: BSD-3-Clause
// Managers that are attached to a shared supervisor: the same API, with other programs beside them.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "ipc/control/operator_messages.h"
#include "testing/sanitizers.h"
#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

class Shared : public AttachedManagers {};
using SharedUnderLoad = Shared;

CallOptions within(milliseconds time) {
  CallOptions options;
  options.deadline = time;
  return options;
}

std::set<int64_t> processesOf(InterpreterManager& manager) {
  std::set<int64_t> processes;
  for (const Interpreter& each : manager.allInstances()) {
    processes.insert(each.processId().value_or(-1));
  }
  return processes;
}

// The inodes of the memory objects with this label that a process has mapped.
std::set<uint64_t> mappedObjects(pid_t pid, const std::string& label) {
  std::set<uint64_t> inodes;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(label) == std::string::npos) continue;
    std::istringstream fields(line);
    std::string range, access, offset, device;
    uint64_t inode = 0;
    fields >> range >> access >> offset >> device >> inode;
    inodes.insert(inode);
  }
  return inodes;
}

TEST_F(Shared, AnAddressOfAnotherFileThanASocketIsNamedAsSuch) {
  PoolOptions options;
  options.sharedSupervisor = "/tmp";
  options.reconnect = milliseconds(0);
  try {
    const InterpreterManager manager(options);
    FAIL() << "a folder is no supervisor";
  } catch (const SupervisorLost& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("it is a folder, not a socket"), std::string::npos) << text;
    EXPECT_EQ(text.find("start one"), std::string::npos) << text;
  }
}

TEST_F(Shared, TwoManagersCallTheSameWorkersAndKeepTheirStateApart) {
  serve({});
  const auto first = attach();
  const auto second = attach();
  EXPECT_EQ(processesOf(*first), processesOf(*second));
  const Subject one(*first);
  const Subject two(*second);
  one.object().callOnAll({"set_mark", 1});
  two.object().callOnAll({"set_mark", 2});
  for (const at::IValue& mark : one.object().callOnAll({"get_mark"})) EXPECT_EQ(mark.toInt(), 1);
  for (const at::IValue& mark : two.object().callOnAll({"get_mark"})) EXPECT_EQ(mark.toInt(), 2);
}

TEST_F(Shared, TheVariableAttachesAnUnchangedProgram) {
  serve({});
  const ScopedVariable socket("ISOPOOL_SOCKET=" + supervisor().address());
  InterpreterManager manager(2);
  const auto shared = attach();
  EXPECT_EQ(processesOf(manager), processesOf(*shared));
  Interpreter alone(std::make_shared<NoopEnvironment>());
  EXPECT_EQ(processesOf(manager).count(alone.processId().value_or(-1)), 1u);
}

TEST_F(Shared, TensorsInSharedMemoryCrossWithoutACopyBothWays) {
  serve({});
  const auto manager = attach();
  const Subject subject(*manager);
  const at::Tensor input = isopool::empty({1 << 20}).fill_(3);
  subject.ask("add_one", {input});
  const CopyCounters before = copyCounters();
  const at::Tensor result = subject.tensor("add_one", {input});
  EXPECT_EQ((copyCounters() - before).total(), 0u);
  EXPECT_TRUE(result.equal(at::full({1 << 20}, 4.0f)));
}

TEST_F(Shared, IfMissingIsReportedWithARemedy) {
  try {
    InterpreterManager manager(Address{"/nowhere/socket"}, 2);
    FAIL() << "a supervisor was found";
  } catch (const SupervisorLost& error) {
    EXPECT_NE(std::string(error.what()).find("isopoold --listen /nowhere/socket"),
              std::string::npos)
        << error.what();
  }
}

TEST(SharedSupervisorAddress, IfEmptyIsRefusedBeforeAnyProcessStarts) {
  // A private supervisor would fail to start.
  const ScopedVariable program("ISOPOOL_SUPERVISOR=/does/not/exist");
  try {
    const InterpreterManager manager(isopool::SharedSupervisor{}, 1);
    FAIL() << "it has an address";
  } catch (const SupervisorLost& error) {
    FAIL() << error.what();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("address"), std::string::npos) << error.what();
  }
}

TEST_F(Shared, APackageThatTwoProgramsLoadIsOneMemoryInBoth) {
  serve({});
  const auto other = program("rest");
  ASSERT_EQ(other->readLine(), "ready");
  const auto own = attach();
  const std::set<uint64_t> before = mappedObjects(::getpid(), "isopool:archive");
  // A second file with the same bytes.
  const std::string copy = testFolder() / "a_copy_of_subject.pt";
  std::filesystem::copy_file(packagePath(), copy,
                             std::filesystem::copy_options::overwrite_existing);
  Package package = own->loadPackage(copy);
  ReplicatedObj object = package.loadPickle("model", "model.pkl");
  EXPECT_EQ(object({"slot"}).toInt(), object({"slot"}).toInt());
  const ipc::Report report = supervisor().report();
  ASSERT_EQ(report.models.size(), 1u);
  EXPECT_EQ(report.models.front().clients.size(), 2u);
  std::set<uint64_t> both;
  const auto theirs = mappedObjects(other->pid(), "isopool:archive");
  for (const uint64_t inode : mappedObjects(::getpid(), "isopool:archive")) {
    if (theirs.count(inode) != 0) both.insert(inode);
  }
  // If another test of this process already holds the same bytes, that memory is shared instead.
  if (before.empty()) {
    EXPECT_EQ(both.size(), 1u);
  }
}

TEST_F(Shared, AProgramThatLeavesAfterALongAnswerLeavesNothingInTheWorkers) {
  serve({});
  const auto staying = attach();
  {
    const auto leaving = attach();
    // The answers are longer than a slot: each is in a block until its client has consumed it.
    for (const at::IValue& answer : Subject(*leaving).object().callOnAll({"text", 100'000})) {
      EXPECT_EQ(answer.toStringRef().size(), 100'000u);
    }
  }
  for (const int64_t process : processesOf(*staying)) {
    const auto channels = [&] {
      return mappedObjects(static_cast<pid_t>(process), "isopool:worker").size();
    };
    EXPECT_TRUE(waitUntil([&] { return channels() == 1; })) << channels() << " channels";
  }
}

TEST_F(Shared, AKilledProgramIsForgottenAndOthersAreServed) {
  serve({"--grace", "100ms"});
  const auto staying = attach();
  const Subject subject(*staying);
  const auto processes = processesOf(*staying);
  const auto victim = program("load");
  ASSERT_EQ(victim->readLine(), "ready");
  victim->kill(SIGKILL);
  EXPECT_TRUE(supervisor().waitForReport(
      [](const ipc::Report& report) {
        return report.clients.size() == 1 &&
               std::all_of(report.workers.begin(), report.workers.end(),
                           [](const auto& worker) { return worker.clients <= 1; });
      },
      kPatience));
  EXPECT_EQ(processesOf(*staying), processes);
  EXPECT_EQ(subject.tensor("add_one", {at::ones({3})})[0].item<float>(), 2);
}

TEST_F(Shared, InputsOfACallThatOutlivesItsManagerStayLentUntilItEnds) {
  serve({"--grace", "60s"});
  const auto other = attach();
  const uint64_t before = other->statistics().inputBytesInUse;
  auto manager = attach(1);
  const Subject subject(*manager);
  const Gate gate;
  auto call = std::async(std::launch::async, [&] {
    const at::Tensor input = isopool::empty({1 << 20}, at::kByte);
    const auto arguments = gate.arguments();
    EXPECT_THROW(subject.ask("wait_at", {arguments[0], arguments[1], input}), Error);
  });
  gate.arrival();
  manager.reset();
  call.get();
  EXPECT_GE(other->statistics().inputBytesInUse, before + (1u << 20));
  gate.open();
  // An introduction looks for what was returned.
  EXPECT_TRUE(waitUntil([&] {
    attach(1);
    return other->statistics().inputBytesInUse <= before;
  }));
}

TEST_F(Shared, AStoppedProgramDoesNotDelayOthers) {
  serve({});
  const auto stopped = program("load");
  ASSERT_EQ(stopped->readLine(), "ready");
  const auto own = attach();
  const Subject subject(*own);
  stopped->kill(SIGSTOP);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(subject.ask("add_one", {at::ones({3})}, within(milliseconds(5000)))
                  .toTensor()[0]
                  .item<float>(),
              2);
  }
  stopped->kill(SIGCONT);
}

TEST_F(Shared, ADyingWorkerIsReplacedForAllAndCallsThatHadNotStartedRunElsewhere) {
  serve({});
  const auto first = attach();
  const auto second = attach();
  const Subject one(*first);
  const Subject two(*second);
  EXPECT_THROW(one.ask("die", {SIGSEGV}), WorkerLost);
  for (int i = 0; i < 20; ++i) EXPECT_NO_THROW(two.number("pid"));
  EXPECT_NO_THROW(one.number("pid"));
  EXPECT_TRUE(supervisor().waitForReport(
      [](const ipc::Report& report) { return report.restarts == 1 && !report.slots.empty(); }));
}

TEST_F(Shared, ADroppedObjectIsAlsoReleasedByTheSpare) {
  serve({"--workers", "1", "--spares", "1"});
  const auto manager = attach(1);
  manager->registerModuleSource("census",
                                "import gc\n"
                                "def subjects():\n"
                                "    gc.collect()\n"
                                "    return sum(type(each).__name__ == 'Subject'"
                                " for each in gc.get_objects())\n");
  const auto subjects = [&] {
    InterpreterSession session = manager->acquireOne();
    return session.global("census", "subjects")(at::ArrayRef<Obj>()).toIValue().toInt();
  };
  // Kills the worker so that the spare replaces it. Waits for a new spare that has received all
  // definitions.
  const auto letTheSpareServe = [&] {
    const pid_t victim = manager->allInstances()[0].processId().value_or(-1);
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    ASSERT_TRUE(waitUntil([&] {
      const pid_t now = manager->allInstances()[0].processId().value_or(-1);
      return now != -1 && now != victim;
    }));
    ASSERT_TRUE(supervisor().waitForReport([](const ipc::Report& report) {
      return report.workers.size() == 2 &&
             std::all_of(report.workers.begin(), report.workers.end(), [](const auto& worker) {
               if (worker.clients != 1) return false;
               return worker.state == "serving" ||
                      (worker.state == "spare" && worker.runningClient == 0 &&
                       !worker.models.empty());
             });
    }));
  };
  const Subject kept(*manager);
  auto dropped = std::make_unique<Subject>(*manager);
  letTheSpareServe();  // this spare is older than the objects
  letTheSpareServe();
  EXPECT_EQ(subjects(), 2);
  dropped.reset();
  letTheSpareServe();
  EXPECT_EQ(subjects(), 1);
}

TEST_F(Shared, ChildrenThatAModelStartedGoWithTheirWorker) {
  serve({});
  const auto manager = attach(1);
  const auto other = attach(2);
  pid_t child = -1;
  {
    InterpreterSession session = manager->acquireOne();
    child = static_cast<pid_t>(
        session
            .global("os", "spawnlp")(
                {session.global("os", "P_NOWAIT").toIValue(), "sleep", "sleep", "600"})
            .toIValue()
            .toInt());
    EXPECT_THROW(session.global(
                     "os", "kill")({manager->allInstances()[0].processId().value_or(-1), SIGKILL}),
                 WorkerLost);
  }
  EXPECT_TRUE(waitUntilDead(child, kPatience));
  EXPECT_NO_THROW(Subject(*other).number("pid"));
}

TEST_F(Shared, ACallThatEndsInTheGracePeriodKillsNoWorker) {
  serve({"--grace", "20s"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const int64_t process = subject.number("pid");
  const Gate gate;
  EXPECT_THROW(subject.ask("wait_at", gate.arguments(), within(milliseconds(100))),
               DeadlineExceeded);
  gate.open();
  EXPECT_EQ(subject.number("pid"), process);
}

TEST_F(Shared, ACallPastItsDeadlineIsKilledAfterTheGracePeriod) {
  serve({"--grace", "200ms"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const int64_t process = subject.number("pid");
  const Gate gate;
  EXPECT_THROW(subject.ask("wait_at", gate.arguments(), within(milliseconds(100))),
               DeadlineExceeded);
  EXPECT_NE(subject.number("pid"), process);
  EXPECT_EQ(supervisor().report().clients.front().overdueCalls, 1u);
}

// Threads that call and check each answer, while processes are killed.
class Callers {
 public:
  Callers(InterpreterManager& manager, int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, subject = Subject(manager), number = float(i)]() mutable {
        run(subject, number);
      });
    }
  }
  ~Callers() { stop(); }
  void stop() {
    stopped_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  uint64_t right() const { return right_; }
  uint64_t wrong() const { return wrong_; }
  uint64_t lostWorkers() const { return lostWorkers_; }
  /// The number of threads that have ended because their supervisor is gone.
  uint64_t ended() const { return ended_; }

 private:
  void run(const Subject& subject, float value) {
    const at::Tensor input = isopool::empty({50'000});
    while (!stopped_) {
      value = value > 1000 ? 0 : value + 1;
      input.fill_(value);
      try {
        const at::Tensor result = subject.tensor("add_one", {input});
        ++(result.equal(at::full({50'000}, value + 1)) ? right_ : wrong_);
      } catch (const WorkerLost&) {
        ++lostWorkers_;
      } catch (const SupervisorLost&) {
        break;
      }
    }
    ++ended_;
  }

  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> right_{0};
  std::atomic<uint64_t> wrong_{0};
  std::atomic<uint64_t> lostWorkers_{0};
  std::atomic<uint64_t> ended_{0};
  std::vector<std::thread> threads_;
};

TEST_F(SharedUnderLoad, EveryKindOfDeathIsAnsweredAndLeavesNothing) {
  serve({"--grace", "100ms"});
  const auto first = attach();
  const auto second = attach();
  Callers callers(*first, 2);
  Callers others(*second, 2);
  std::mt19937 random(20261121);
  auto program = this->program("load");
  for (int blow = 0; blow < 15; ++blow) {
    ASSERT_EQ(program->readLine(), "ready");
    const uint64_t before = callers.right() + others.right();
    ASSERT_TRUE(waitUntil([&] { return callers.right() + others.right() > before + 20; }));
    // Waits until each process has an id: kill(0, ...) would kill this test's process group.
    ipc::Report report;
    ASSERT_TRUE(supervisor().waitForReport(
        [&](const ipc::Report& now) {
          report = now;
          return now.zygoteProcessId > 0 && !now.workers.empty() &&
                 std::all_of(now.workers.begin(), now.workers.end(),
                             [](const auto& worker) { return worker.processId > 0; });
        },
        kPatience));
    switch (random() % 4) {
      case 0:
        ::kill(report.zygoteProcessId, SIGKILL);
        program->kill(SIGKILL);
        break;
      case 1:
        program->kill(SIGSTOP);
        program->kill(SIGKILL);
        break;
      default:
        ::kill(report.workers.at(random() % report.workers.size()).processId,
               random() % 2 == 0 ? SIGKILL : SIGSEGV);
        program->kill(SIGTERM);
    }
    program = this->program("load");
  }
  callers.stop();
  others.stop();
  program.reset();
  EXPECT_EQ(callers.wrong() + others.wrong(), 0u);
  EXPECT_GT(supervisor().report().restarts, 0u);
  EXPECT_TRUE(supervisor().waitForReport([](const ipc::Report& report) {
    return report.clients.size() == 2 && report.workers.size() == 3 &&
           std::all_of(report.workers.begin(), report.workers.end(), [](const auto& worker) {
             return worker.clients == 2 && worker.zombieBytes == 0 && worker.runningClient == 0 &&
                    (worker.state == "serving" || worker.state == "spare");
           });
  }));
}

TEST_F(SharedUnderLoad, TheSupervisorsDeathEndsEveryCallAndLeavesNothing) {
  serve({});
  const auto first = attach();
  const auto second = attach();
  Callers callers(*first, 2);
  Callers others(*second, 2);
  ASSERT_TRUE(waitUntil([&] { return callers.right() > 100 && others.right() > 100; }));
  ::kill(supervisor().supervisorPid(), SIGKILL);
  EXPECT_TRUE(waitUntil([&] { return callers.ended() == 2 && others.ended() == 2; }));
  EXPECT_EQ(callers.wrong() + others.wrong(), 0u);
  EXPECT_TRUE(supervisor().mark().waitUntilNoneIsLeft(kPatience));
}

TEST_F(Shared, AProgramThatLoadedAModelLeavesNothingOfItInTheWorkers) {
  serve({"--workers", "1", "--spares", "0"});
  const auto keeper = attach(1);
  const pid_t worker = keeper->allInstances()[0].processId().value_or(-1);
  const auto cycle = [&] {
    const auto manager = attach(1);
    EXPECT_NO_THROW(Subject(*manager).number("pid"));
  };
  const auto settled = [&] {
    return supervisor().waitForReport(
        [](const ipc::Report& report) { return report.workers.front().clients == 1; });
  };
  for (int i = 0; i < 5; ++i) cycle();
  ASSERT_TRUE(settled());
  const size_t descriptors = openDescriptors(worker);
  const size_t archives = mappedObjects(worker, "isopool:archive").size();
  for (int i = 0; i < 50; ++i) cycle();
  ASSERT_TRUE(settled());
  // Waits instead of calling: a call does not wait until the worker has collected what the other
  // programs have left.
  EXPECT_TRUE(waitUntil(
      [&] {
        return openDescriptors(worker) <= descriptors &&
               mappedObjects(worker, "isopool:archive").size() <= archives;
      },
      kPatience));
}

// ---- many programs ---------------------------------------------------------------------------

TEST_F(Shared, MoreProgramsThanTheKernelLetsOneThreadWaitForAreAllServed) {
  serve({"--workers", "1", "--spares", "0", "--output-arena", "64KiB"});
  std::vector<std::unique_ptr<InterpreterManager>> managers;
  for (int i = 0; i < 200; ++i) managers.push_back(attach(1));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 200; ++i) {
      InterpreterSession session = managers[i]->acquireOne();
      EXPECT_EQ(session.global("builtins", "abs")({-i}).toIValue().toInt(), i);
    }
  }
}

TEST_F(SharedUnderLoad, AThousandAttachmentsLeaveNothingInAWorker) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << "the sanitizer holds freed memory back";
  serve({"--workers", "1", "--spares", "0"});
  const auto keeper = attach(1);
  const pid_t worker = keeper->allInstances()[0].processId().value_or(-1);
  const auto cycle = [&] {
    const auto manager = attach(1);
    InterpreterSession session = manager->acquireOne();
    EXPECT_EQ(session.global("builtins", "abs")({-1}).toIValue().toInt(), 1);
  };
  const auto settled = [&] {
    return supervisor().waitForReport([](const ipc::Report& report) {
      return report.clients.size() == 1 && report.workers.front().clients == 1;
    });
  };
  const auto mappings = [&] {
    std::ifstream maps("/proc/" + std::to_string(worker) + "/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  for (int i = 0; i < 20; ++i) cycle();
  ASSERT_TRUE(settled());
  const size_t descriptors = openDescriptors(worker);
  const auto mapped = mappings();
  for (int i = 0; i < 1000; ++i) cycle();
  ASSERT_TRUE(settled());
  EXPECT_LE(openDescriptors(worker), descriptors);
  // The heap may get some; what an attachment leaves would be there a thousand times.
  EXPECT_LE(mappings(), mapped + 50);
  EXPECT_EQ(keeper->allInstances()[0].processId().value_or(-1), worker);
}

// ---- recycling, draining and the end ---------------------------------------------------------

TEST_F(Shared, ARecycledWorkerServesItsSessionsToTheirEndAndNoCallFails) {
  serve({"--workers", "1", "--recycle-calls", "50"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  auto session = std::make_unique<InterpreterSession>(manager->acquireOne());
  const auto sessionProcess = [&] {
    return session->global("os", "getpid")(at::ArrayRef<at::IValue>{}).toIValue().toInt();
  };
  const int64_t old = sessionProcess();
  ASSERT_TRUE(waitUntil([&] { return subject.number("pid") != old; }));
  EXPECT_EQ(sessionProcess(), old);
  session.reset();
  EXPECT_TRUE(waitUntilDead(static_cast<pid_t>(old), milliseconds(5000)));
  EXPECT_NO_THROW(subject.number("pid"));
  const ipc::Report report = supervisor().report();
  EXPECT_GE(report.recycled, 1u);
  EXPECT_EQ(report.restarts, 0u);
}

TEST_F(Shared, ADrainedSupervisorAnswersWhatRunsAndRefusesWhatIsNew) {
  serve({});
  const auto manager = attach();
  const Subject subject(*manager);
  const Gate gate;
  auto running = std::async(std::launch::async, [&] { subject.ask("wait_at", gate.arguments()); });
  gate.arrival();
  supervisor().signal(SIGTERM);
  std::string refusal;
  ASSERT_TRUE(waitUntil([&] {
    try {
      subject.number("pid");
    } catch (const SupervisorLost& error) {
      refusal = error.what();
    }
    return !refusal.empty();
  }));
  EXPECT_NE(refusal.find("shutting down"), std::string::npos) << refusal;
  gate.open();
  EXPECT_NO_THROW(running.get());
  EXPECT_EQ(supervisor().waitForEnd(), 0);
}

TEST_F(Shared, ADrainedSupervisorAnswersCallsThatWaitForAWorker) {
  serve({"--workers", "1"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const Gate gate;
  auto running = std::async(std::launch::async, [&] { subject.ask("wait_at", gate.arguments()); });
  gate.arrival();
  std::vector<PendingCall> asynchronous;
  for (int i = 0; i < 5; ++i) asynchronous.push_back(subject.object().callAsync({"pid"}));
  std::vector<std::future<int64_t>> waiting;
  for (int i = 0; i < 5; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] { return subject.number("pid"); }));
  }
  // The calls wait for a worker, are queued, run, or are in the worker's ring.
  ASSERT_TRUE(waitUntil([&] {
    const PoolStatistics now = manager->statistics();
    return now.callersWaiting + now.asyncCallsQueued + now.workers[0].callsInFlight == 11;
  }));
  supervisor().signal(SIGTERM);
  ASSERT_TRUE(waitUntil([&] {
    try {
      subject.object().callAsync({"pid"});
    } catch (const SupervisorLost& error) {
      EXPECT_FALSE(error.started());
      return true;
    }
    return false;
  }));
  gate.open();
  EXPECT_NO_THROW(running.get());
  for (auto& each : waiting) EXPECT_NO_THROW(each.get());
  for (const PendingCall& each : asynchronous) EXPECT_NO_THROW(each.get());
  EXPECT_EQ(supervisor().waitForEnd(), 0);
}

TEST_F(Shared, ADrainedSupervisorAnswersACallOnEveryWorkerThatHasBegun) {
  serve({"--workers", "1"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const Gate gate;
  auto step = std::async(std::launch::async, [&] {
    InterpreterSession session = subject.object().acquireSession();
    const auto arguments = gate.arguments();
    return session.self({at::IValue("wait_at"), arguments[0], arguments[1]}).toIValue().toInt();
  });
  const pid_t worker = gate.arrival();
  // The first step of the broadcast waits behind that call; more steps follow.
  auto broadcast =
      std::async(std::launch::async, [&] { return manager->callOnAll("os", "getpid").at(0); });
  EXPECT_TRUE(waitUntil([&] { return manager->statistics().workers.at(0).stepsInFlight == 2; }));
  supervisor().signal(SIGTERM);
  EXPECT_TRUE(waitUntil([&] {
    try {
      subject.object().callAsync({"pid"});
    } catch (const SupervisorLost&) {
      return true;
    }
    return false;
  }));
  EXPECT_THROW(subject.object().callOnAll({"pid"}), SupervisorLost);
  gate.open();
  EXPECT_EQ(broadcast.get().toInt(), worker);
  EXPECT_EQ(step.get(), worker);
  EXPECT_EQ(supervisor().waitForEnd(), 0);
}

TEST_F(Shared, ACallThatDrainingDoesNotWaitForSaysWhetherItStarted) {
  serve({"--workers", "1", "--drain-timeout", "300ms"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const Gate gate;
  const auto startedOf = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const SupervisorLost& error) {
      return error.started() ? "started" : "not started";
    }
    return "answered";
  };
  auto running = std::async(std::launch::async, [&] {
    return startedOf([&] { subject.ask("wait_at", gate.arguments()); });
  });
  gate.arrival();
  std::vector<std::future<std::string>> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.push_back(
        std::async(std::launch::async, [&] { return startedOf([&] { subject.number("pid"); }); }));
  }
  supervisor().signal(SIGTERM);
  EXPECT_EQ(running.get(), "started");
  for (auto& each : waiting) EXPECT_EQ(each.get(), "not started");
  EXPECT_EQ(supervisor().waitForEnd(), 0);
}

TEST_F(Shared, AfterTheSupervisorsDeathANewManagerAttachesToTheNextOne) {
  serve({});
  auto manager = attach();
  const auto subject = std::make_unique<Subject>(*manager);
  const std::string address = supervisor().address();
  ::kill(supervisor().supervisorPid(), SIGKILL);
  EXPECT_TRUE(waitUntil([&] {
    try {
      subject->number("pid");
    } catch (const SupervisorLost&) {
      return true;
    } catch (const WorkerLost&) {
    }
    return false;
  }));
  supervisor().waitForEnd();
  supervisor().start();
  const auto next = attach();
  EXPECT_NO_THROW(Subject(*next).number("pid"));
}

TEST_F(Shared, CodeOfAStrictWorkerIsNoProgramOfItsOwnSupervisor) {
  serve({"--sandbox", "strict", "--sandbox-network"});
  const auto manager = attach(1);
  InterpreterSession session = manager->acquireOne();
  const Obj socket = session.global("socket", "socket")({AF_UNIX, SOCK_STREAM});
  socket.attr("connect")({supervisor().address()});
  const std::string answer =
      socket.attr("recv")({65536}).attr("decode")({"latin1"}).toIValue().toStringRef();
  EXPECT_NE(answer.find("it was started by a worker"), std::string::npos) << answer;
}

TEST_F(Shared, StrictWorkersServeAndForbiddenActsAreCounted) {
  serve({"--sandbox", "strict"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  EXPECT_TRUE(subject.tensor("add_one", {at::ones({3})}).equal(at::full({3}, 2.0f)));
  InterpreterSession session = manager->acquireOne();
  try {
    session.global("builtins", "open")({"/etc/shadow"});
    FAIL() << "it was opened";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "PermissionError");
  }
  EXPECT_TRUE(supervisor().waitForReport([](const ipc::Report& report) {
    for (const auto& worker : report.workers) {
      for (const auto& act : worker.forbiddenActs) {
        if (act.name.find("/etc/shadow") != std::string::npos && act.count >= 1) return true;
      }
    }
    return false;
  }));
}

// The loader waits at the gate. All workers are new, and could load the object ahead of its calls.
TEST_F(Shared, WorkersThatMakeObjectsAheadLeaveOneToOtherPrograms) {
  serve({"--spares", "1"});
  const Gate gate;
  const std::filesystem::path folder = testFolder() / "loads_at_a_gate";
  std::filesystem::create_directory(folder);
  const auto names = gate.arguments();
  std::ofstream(folder / "loading.py")
      << "log = '" << (folder / "log").string() << "'\narrived = '" << names[0].toStringRef()
      << "'\ngate = '" << names[1].toStringRef() << "'\n";
  PoolOptions options;
  options.workers = 2;
  options.sharedSupervisor = supervisor().address();
  options.pythonPaths = {folder};
  InterpreterManager manager(options);
  gate.open();
  const ReplicatedObj slow =
      manager.loadPackage(packagePath()).loadPickle("model", "slow_to_load.pkl");
  for (const at::IValue& name : names) std::filesystem::remove(name.toStringRef());
  const auto others = attach(2);
  const Subject other(*others);
  EXPECT_TRUE(supervisor().waitForReport(
      [](const ipc::Report& report) { return report.workers.size() == 3; }));
  for (const ipc::ReportedWorker& worker : supervisor().report().workers) {
    ::kill(worker.processId, SIGKILL);
  }
  gate.arrival();
  CallOptions soon;
  soon.deadline = milliseconds(20'000);
  soon.idempotent = true;
  for (int i = 0; i < 20; ++i) EXPECT_GT(other.ask("pid", {}, soon).toInt(), 0);
  gate.open();
  EXPECT_GT(slow(std::vector<at::IValue>{}).toInt(), 0);
}

}  // namespace
}  // namespace isopool::tests
