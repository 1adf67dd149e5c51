// SPDX-License-Identifier: BSD-3-Clause
// What an operator sees of the models that programs call in a shared supervisor.
#include <signal.h>

#include <algorithm>
#include <future>
#include <vector>

#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

constexpr const char* kName = "subject.pt:model/model.pkl";

class SharedModelCalls : public AttachedManagers {
 protected:
  /// The calls of the model by programs of no class; none are 0.
  static ipc::ModelCalls callsIn(const ipc::Report& report) {
    for (const ipc::ReportedClass& each : report.classes) {
      for (const ipc::ModelCalls& calls : each.models) {
        if (each.name.empty() && calls.model == kName) return calls;
      }
    }
    return {};
  }
};

TEST_F(SharedModelCalls, AreReportedWhileTheProgramRunsAndStayWhenItHasLeft) {
  serve({});
  auto manager = attach();
  {
    const Subject subject(*manager);
    for (int i = 0; i < 20; ++i) subject.number("pid");
    EXPECT_THROW(subject.ask("fail", {1}), RemoteError);
    EXPECT_TRUE(supervisor().waitForReport([](const ipc::Report& report) {
      const ipc::ModelCalls calls = callsIn(report);
      return calls.answered == 20 && calls.failed == 1 && calls.sumMicroseconds > 0;
    }));
    subject.number("pid");
  }
  manager.reset();
  EXPECT_TRUE(supervisor().waitForReport([](const ipc::Report& report) {
    const ipc::ModelCalls calls = callsIn(report);
    return report.clients.empty() && calls.answered == 21 && calls.failed == 1;
  }));
}

TEST_F(SharedModelCalls, OfAFormerSupervisorAreNotReportedToTheNextOne) {
  serve({});
  auto manager = attach(2, milliseconds(60'000));
  {
    const Subject subject(*manager);
    for (int i = 0; i < 20; ++i) subject.number("pid");
    ASSERT_EQ(::kill(supervisor().supervisorPid(), SIGKILL), 0);
    ASSERT_TRUE(supervisor().waitForEnd());
    supervisor().start();
    for (int i = 0; i < 5; ++i) subject.number("pid");
  }
  manager.reset();
  EXPECT_TRUE(supervisor().waitForReport([](const ipc::Report& report) {
    return report.clients.empty() && callsIn(report).answered > 0;
  }));
  supervisor().waitForReport([](const ipc::Report& report) {
    const ipc::ReportedClass& all = report.classes.at(0);
    EXPECT_EQ(callsIn(report).answered, 5u);
    EXPECT_EQ(all.completedCalls, 5u);
    return true;
  });
}

TEST_F(SharedModelCalls, OfAnEvictedProgramThatAttachesAgainAreReportedOnce) {
  serve({});
  auto manager = attach(2, milliseconds(60'000));
  {
    const Subject subject(*manager);
    for (int i = 0; i < 20; ++i) subject.number("pid");
    const uint64_t number = supervisor().report().clients.at(0).number;
    ASSERT_TRUE(supervisor().act(ipc::Action::kEvictClient, number).done);
    for (int i = 0; i < 5; ++i) subject.number("pid");
  }
  manager.reset();
  EXPECT_TRUE(supervisor().waitForReport([](const ipc::Report& report) {
    return report.clients.empty() && callsIn(report).answered == 25;
  }));
}

TEST_F(SharedModelCalls, TheReportSaysWhichModelRunsAndWhichAreLoaded) {
  serve({});
  const auto manager = attach();
  const Subject subject(*manager);
  const Gate gate;
  auto call = std::async(std::launch::async, [&] { subject.ask("wait_at", gate.arguments()); });
  const pid_t worker = gate.arrival();
  const auto itsWorker = [&](const ipc::Report& report, const auto& condition) {
    return std::any_of(report.workers.begin(), report.workers.end(), [&](const auto& each) {
      return each.processId == worker && condition(each);
    });
  };
  EXPECT_TRUE(supervisor().waitForReport([&](const ipc::Report& report) {
    return itsWorker(report, [](const ipc::ReportedWorker& each) {
      return each.runningModel == kName && each.models == std::vector<std::string>{kName};
    });
  }));
  gate.open();
  call.get();
  EXPECT_TRUE(supervisor().waitForReport([&](const ipc::Report& report) {
    return itsWorker(report, [](const ipc::ReportedWorker& each) {
      return each.runningModel.empty() && !each.models.empty();
    });
  }));
}

TEST_F(SharedModelCalls, CallsThatWaitInTheProgramAreQueuedForTheOperator) {
  serve({"--workers", "1"});
  const auto manager = attach(1);
  const Subject subject(*manager);
  const Gate gate;
  std::vector<std::future<void>> calls;
  const auto queued = [this](auto&& condition) {
    return supervisor().waitForReport([&](const ipc::Report& report) {
      return report.clients.size() == 1 && condition(report.clients[0].queuedCalls);
    });
  };
  // One runs, and a second one waits at the worker at most; the others wait in the program.
  for (int i = 0; i < 6; ++i) {
    calls.push_back(
        std::async(std::launch::async, [&] { subject.ask("wait_at", gate.arguments()); }));
  }
  gate.arrival();
  EXPECT_TRUE(queued([](uint64_t number) { return number == 5; }));
  gate.open();
  for (auto& call : calls) call.get();
  EXPECT_TRUE(queued([](uint64_t number) { return number == 0; }));
}

TEST_F(SharedModelCalls, ACallThatHasMovedToAnotherWorkerIsQueuedOnce) {
  serve({"--workers", "2"});
  const auto manager = attach(2);
  const Subject subject(*manager);
  for (int i = 0; i < 20; ++i) subject.number("pid");  // short ones: a worker may have two
  EXPECT_TRUE(supervisor().waitForReport(
      [&](const ipc::Report& report) { return callsIn(report).answered >= 20; }));
  std::vector<pid_t> workers;
  for (const ipc::ReportedWorker& each : supervisor().report().workers) {
    workers.push_back(each.processId);
    ASSERT_EQ(::kill(each.processId, SIGSTOP), 0);
  }
  std::vector<std::future<int64_t>> calls;
  for (int i = 0; i < 4; ++i) {
    calls.push_back(std::async(std::launch::async, [&] { return subject.number("pid"); }));
  }
  // Of the four, those that a stopped worker has begun run.
  int reports = 0;
  EXPECT_TRUE(supervisor().waitForReport([&](const ipc::Report& report) {
    const ipc::ReportedClient& client = report.clients.at(0);
    const uint64_t open = client.queuedCalls + client.runningCalls;
    EXPECT_LE(open, 4u);
    return open == 4 && ++reports == 20;
  }));
  for (const pid_t worker : workers) ::kill(worker, SIGCONT);
  for (auto& call : calls) EXPECT_GT(call.get(), 0);
}

TEST_F(SharedModelCalls, AModelThatWasReleasedIsNotLoadedAnyMore) {
  serve({});
  const auto manager = attach();
  { Subject(*manager).number("pid"); }
  EXPECT_TRUE(supervisor().waitForReport([](const ipc::Report& report) {
    return std::all_of(report.workers.begin(), report.workers.end(),
                       [](const auto& each) { return each.models.empty(); });
  }));
}

TEST_F(SharedModelCalls, ALineOfOutputNamesItsWorkerAndItsModel) {
  serve({});
  const auto manager = attach(1);
  const Subject subject(*manager);
  subject.ask("say", {"hello, operator"});
  const std::string line = R"("message":"hello, operator","source":"worker","worker_pid":)" +
                           std::to_string(subject.number("pid")) + R"(,"slot":")";
  EXPECT_TRUE(waitUntil([&] { return supervisor().log().find(line) != std::string::npos; }))
      << supervisor().log();
  EXPECT_NE(supervisor().log().find(std::string(R"(","model":")") + kName + "\"}"),
            std::string::npos)
      << supervisor().log();
}

}  // namespace
}  // namespace isopool::tests
