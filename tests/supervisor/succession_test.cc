// SPDX-License-Identifier: BSD-3-Clause
// Another supervisor takes over the address of a shared one: programs without a call attach to it
// at once, and the death of either supervisor leaves an address that is served, or an exit code.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "ipc/control/client_messages.h"
#include "ipc/control/operator_messages.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

using ipc::Action;

constexpr milliseconds kPatience(10'000);

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A program with a call that runs until open().
class Busy {
 public:
  explicit Busy(const SharedSupervisor& supervisor)
      : gate_(supervisor.folder() + "/gate"), client_(supervisor.attachWithPool(1, "busy")) {
    worker_ = client_->serving(1, 0);
    client_->post(worker_, "!await " + gate_);
    EXPECT_TRUE(client_->waitFor([&] { return client_->worker(worker_).end->hasStarted(1); }));
  }
  ControlClient& client() { return *client_; }
  /// Opens the gate and returns whether the call was answered.
  bool completes() {
    std::ofstream(gate_) << "";
    ipc::ClientEnd& end = *client_->worker(worker_).end;
    return client_->waitFor([&] { return end.completionReady(); }, kPatience);
  }

 private:
  const std::string gate_;
  std::unique_ptr<ControlClient> client_;
  uint64_t worker_ = 0;
};

/// Acknowledges Drain as a manager does whose calls have ended or that waits for one.
void acknowledge(ControlClient& client) {
  ASSERT_TRUE(client.waitFor([&] { return client.drain().has_value(); }, kPatience));
  client.send(ipc::AcknowledgeDrain{});
}

void expectService(const SharedSupervisor& supervisor) {
  const auto client = supervisor.attachWithPool(1, "next");
  EXPECT_EQ(client->call(client->serving(1, 0), "served"), "served");
}

TEST(Drain, LetsProgramsWithoutACallAttachToANextSupervisorAtOnce) {
  SharedSupervisor supervisor({"--workers", "2"});
  Busy busy(supervisor);
  const auto idle = supervisor.attachWithPool(1, "idle");
  supervisor.signal(SIGTERM);
  acknowledge(busy.client());
  acknowledge(*idle);
  // There is no other one yet: the program would wait without a connection.
  EXPECT_FALSE(idle->waitForEnd(milliseconds(200)));
  const pid_t former = supervisor.startNext();
  EXPECT_TRUE(idle->waitForEnd());
  EXPECT_TRUE(has(idle->failure().value_or(""), "another supervisor has taken over"));
  expectService(supervisor);
  EXPECT_FALSE(busy.client().controlEnded());
  EXPECT_TRUE(busy.completes());
  EXPECT_EQ(waitForEndOf(former), 0);
  EXPECT_TRUE(std::filesystem::exists(supervisor.address()));
  expectService(supervisor);
}

TEST(Drain, AsAnOperatorWantsItIsThatOfASignal) {
  SharedSupervisor supervisor({"--workers", "1"});
  Busy busy(supervisor);
  const ipc::ActionDone outcome = supervisor.act(Action::kDrain);
  EXPECT_TRUE(outcome.done) << outcome.text;
  acknowledge(busy.client());
  EXPECT_FALSE(std::filesystem::exists(supervisor.address()));
  EXPECT_TRUE(busy.completes());
  EXPECT_EQ(supervisor.waitForEnd(), 0);
}

/// Attaches programs without a pause, one after the other, and counts those that are refused.
class Arrivals {
 public:
  explicit Arrivals(const SharedSupervisor& supervisor)
      : thread_([this, &supervisor] {
          while (!stopped_) {
            ControlClient client(supervisor.connect());
            if (client.controlFd() < 0) {
              ++refused_;
              continue;
            }
            const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
            ipc::Hello hello;
            hello.layoutVersion = ipc::kLayoutVersion;
            client.send(hello, {pidfd.get()});
            client.waitFor([&] { return client.isWelcome() || client.controlEnded(); }, kPatience);
            ++(client.isWelcome() ? served_ : refused_);
          }
        }) {}
  ~Arrivals() { end(); }
  void end() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }
  uint64_t served() const { return served_; }
  uint64_t refused() const { return refused_; }

 private:
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> served_{0};
  std::atomic<uint64_t> refused_{0};
  std::thread thread_;
};

TEST(Restart, RefusesNoProgramAndEndsNoCall) {
  SharedSupervisor supervisor({"--workers", "2"});
  const pid_t guardian = supervisor.pid();
  const pid_t former = supervisor.supervisorPid();
  Busy busy(supervisor);
  const auto idle = supervisor.attachWithPool(1, "idle");
  Arrivals arrivals(supervisor);
  const ipc::ActionDone outcome = supervisor.act(Action::kRestart);
  ASSERT_TRUE(outcome.done) << outcome.text;
  acknowledge(busy.client());
  acknowledge(*idle);
  EXPECT_TRUE(idle->waitForEnd());
  ASSERT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
    return report.processId != former && report.state == "serving";
  }));
  const uint64_t served = arrivals.served();
  while (arrivals.served() < served + 20) ::poll(nullptr, 0, 1);
  arrivals.end();
  EXPECT_EQ(arrivals.refused(), 0u) << "of " << arrivals.served() + arrivals.refused();
  EXPECT_FALSE(busy.client().controlEnded());
  EXPECT_TRUE(busy.completes());
  EXPECT_TRUE(busy.client().waitForEnd());
  expectService(supervisor);
  EXPECT_EQ(supervisor.pid(), guardian);
  EXPECT_TRUE(waitUntilDead(former, kPatience));
  EXPECT_EQ(supervisor.waitForEnd(milliseconds(100)), std::nullopt) << "the guardian goes on";
  supervisor.signal(SIGTERM);
  EXPECT_EQ(supervisor.waitForEnd(), 0);
  EXPECT_FALSE(std::filesystem::exists(supervisor.address()));
}

pid_t supervisorAfter(const SharedSupervisor& supervisor, pid_t former) {
  EXPECT_TRUE(supervisor.waitForReport(
      [&](const ipc::Report& report) { return report.processId != former; }, kPatience));
  return supervisor.supervisorPid();
}

TEST(Restart, MayBeRepeatedAndLeavesNothing) {
  SharedSupervisor supervisor({"--workers", "1"});
  expectService(supervisor);
  pid_t present = supervisor.supervisorPid();
  size_t processes = 0;
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(supervisor.waitForReport(
        [](const ipc::Report& report) { return report.state == "serving"; }));
    ASSERT_TRUE(supervisor.act(Action::kRestart).done);
    const pid_t former = std::exchange(present, supervisorAfter(supervisor, present));
    ASSERT_TRUE(waitUntilDead(former, kPatience));
    expectService(supervisor);
    ASSERT_TRUE(supervisor.waitForReport([](const ipc::Report& report) {
      return std::count_if(report.workers.begin(), report.workers.end(), [](const auto& each) {
               return each.state == "serving" || each.state == "spare";
             }) == 2;
    }));
    const auto count = [&] { return supervisor.mark().processes().size(); };
    if (round == 0) processes = count();
    const auto deadline = Clock::now() + kPatience;
    while (count() != processes && Clock::now() < deadline) ::poll(nullptr, 0, 5);
    EXPECT_EQ(count(), processes);
  }
}

TEST(Restart, OfWrongSettingsLeavesThePresentSupervisor) {
  SharedSupervisor supervisor({}, "workers = 1\n");
  const pid_t present = supervisor.supervisorPid();
  const auto client = supervisor.attachWithPool(1);
  supervisor.writeSettings("workres = 1\n");
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  ASSERT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
    return has(report.successor, "it ended before it served, with exit code 2: ") &&
           has(report.successor, "workres is not a setting");
  })) << supervisor.report().successor;
  EXPECT_EQ(supervisor.supervisorPid(), present);
  EXPECT_EQ(client->call(client->serving(1, 0), "undisturbed"), "undisturbed");
  std::istringstream log(supervisor.log());
  size_t lines = 0;
  for (std::string line; std::getline(log, line);) {
    EXPECT_TRUE(line.starts_with("{\"time\":") && line.ends_with("}")) << line;
    lines += has(line, "workres is not a setting") ? 1 : 0;
  }
  EXPECT_EQ(lines, 2u) << "of the successor, and of the supervisor that goes on";
  supervisor.writeSettings("workers = 2\n");
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  supervisorAfter(supervisor, present);
  EXPECT_EQ(supervisor.report().slots.size(), 2u);
}

TEST(Restart, WhoseZygoteFailsLeavesThePresentSupervisor) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  supervisor.setMode("zygote-fails");
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  ASSERT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
    return has(report.successor, "it ended before it served, with exit code 1: ") &&
           !has(report.successor, "its lines of the log");
  })) << supervisor.report().successor;
  EXPECT_EQ(client->call(client->serving(1, 0), "undisturbed"), "undisturbed");
  EXPECT_TRUE(std::filesystem::exists(supervisor.address()));
}

TEST(Restart, WhoseWorkersFailLeavesThePresentSupervisor) {
  SharedSupervisor supervisor({"--workers", "2", "--restart-limit", "2"});
  const auto client = supervisor.attachWithPool(1);
  supervisor.setMode("worker-exits");
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  ASSERT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
    return has(report.successor, "it ended before it served, with exit code 1: ") &&
           has(report.successor, "no worker can start: ");
  })) << supervisor.report().successor;
  EXPECT_EQ(client->call(client->serving(1, 0), "undisturbed"), "undisturbed");
  EXPECT_TRUE(std::filesystem::exists(supervisor.address()));
}

TEST(Restart, ServesWhenEachGroupHasAWorker) {
  SharedSupervisor supervisor(
      {}, "workers = 2\n[class.fast]\nprogram = \"fast\"\ndedicated_workers = 1\n");
  pid_t present = supervisor.supervisorPid();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(supervisor.waitForReport(
        [](const ipc::Report& report) { return report.state == "serving"; }));
    ASSERT_TRUE(supervisor.act(Action::kRestart).done);
    ipc::Report first;
    ASSERT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
      first = report;
      return report.processId != 0 && report.processId != present;
    }));
    std::set<std::string> served;
    for (const ipc::ReportedWorker& worker : first.workers) {
      if (worker.state == "serving") served.insert(worker.group);
    }
    EXPECT_EQ(served, (std::set<std::string>{"fast", "shared"}));
    ASSERT_TRUE(waitUntilDead(present, kPatience));
    present = first.processId;
  }
}

TEST(Restart, AnswersAnOperatorThatHasConnectedToTheFormerSupervisor) {
  SharedSupervisor supervisor({"--workers", "1"});
  expectService(supervisor);
  const pid_t former = supervisor.supervisorPid();
  ipc::ControlSocket early = supervisor.connectOperator();
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  EXPECT_TRUE(supervisor.waitForReport(
      [&](const ipc::Report& report) { return report.processId != former; }, kPatience));
  const ipc::Report report = SharedSupervisor::reportOn(early);
  EXPECT_EQ(report.processId, former);
  EXPECT_EQ(report.state, "draining");
  EXPECT_TRUE(waitUntilDead(former, kPatience));
}

TEST(Restart, WaitsForAnOperatorWithoutARequestAsLongAsForAGreeting) {
  SharedSupervisor supervisor({"--workers", "1", "--handshake-timeout", "300ms"});
  expectService(supervisor);
  const pid_t former = supervisor.supervisorPid();
  const ipc::ControlSocket silent = supervisor.connectOperator();
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  EXPECT_TRUE(waitUntilDead(former, kPatience));
}

TEST(Restart, IsRefusedWhileOneIsUnderWay) {
  SharedSupervisor supervisor({"--workers", "1"});
  expectService(supervisor);
  supervisor.setMode("zygote-silent");
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  EXPECT_TRUE(has(supervisor.act(Action::kRestart).text, "is being started already"));
  EXPECT_TRUE(has(supervisor.act(Action::kDrain).text, "if it does not serve within 130 s"));
  EXPECT_EQ(supervisor.report().successor, "starting");
  // SIGTERM is for both.
  supervisor.signal(SIGTERM);
  EXPECT_EQ(supervisor.waitForEnd(kPatience), 0);
}

TEST(Restart, ThatASignalEndsLeavesNoSocketAndClaimsNoService) {
  SharedSupervisor supervisor({"--workers", "1"});
  Busy busy(supervisor);
  supervisor.setMode("zygote-silent");
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  supervisor.signal(SIGTERM);
  acknowledge(busy.client());
  ASSERT_TRUE(busy.client().waitFor(
      [&] { return has(supervisor.log(), "no other supervisor takes over"); }, kPatience));
  EXPECT_TRUE(busy.completes());
  busy.client().closeControl();
  EXPECT_EQ(supervisor.waitForEnd(kPatience), 0);
  EXPECT_FALSE(std::filesystem::exists(supervisor.address()));
  EXPECT_FALSE(has(supervisor.log(), "goes on serving")) << supervisor.log();
}

TEST(Restart, ThatASignalEndsWithoutACallInFlightLeavesNoSocket) {
  SharedSupervisor supervisor({"--workers", "1"});
  expectService(supervisor);
  supervisor.setMode("zygote-silent");
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  supervisor.signal(SIGTERM);
  EXPECT_EQ(supervisor.waitForEnd(kPatience), 0);
  EXPECT_FALSE(std::filesystem::exists(supervisor.address()));
}

/// The processes of the service that run isopoold itself and are no guardian.
std::vector<pid_t> supervisorsOf(const SharedSupervisor& supervisor) {
  std::vector<pid_t> all;
  for (const pid_t each : supervisor.mark().processes()) {
    std::error_code error;
    const auto program =
        std::filesystem::read_symlink("/proc/" + std::to_string(each) + "/exe", error);
    if (each != supervisor.pid() && program == std::filesystem::canonical(ISOPOOLD)) {
      all.push_back(each);
    }
  }
  return all;
}

pid_t successorOf(const SharedSupervisor& supervisor, pid_t present) {
  const auto deadline = Clock::now() + kPatience;
  while (Clock::now() < deadline) {
    for (const pid_t each : supervisorsOf(supervisor)) {
      if (each != present) return each;
    }
    ::poll(nullptr, 0, 1);
  }
  ADD_FAILURE() << "no successor is started";
  return -1;
}

TEST(SuccessionDeath, OfAStartingSuccessorLeavesThePresentSupervisor) {
  SharedSupervisor supervisor({"--workers", "1"});
  expectService(supervisor);
  const pid_t present = supervisor.supervisorPid();
  supervisor.setMode("zygote-silent");
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  ::kill(successorOf(supervisor, present), SIGKILL);
  ASSERT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
    return has(report.successor, "it ended before it served, by signal 9");
  }));
  supervisor.setMode("");
  expectService(supervisor);
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  supervisorAfter(supervisor, present);
  expectService(supervisor);
}

TEST(SuccessionDeath, OfThePresentSupervisorLeavesTheStartingSuccessor) {
  SharedSupervisor supervisor({"--workers", "1"});
  expectService(supervisor);
  const pid_t present = supervisor.supervisorPid();
  supervisor.setMode("zygote-waits");
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  const pid_t successor = successorOf(supervisor, present);
  supervisor.setMode("");
  ::kill(present, SIGKILL);
  EXPECT_EQ(supervisorAfter(supervisor, present), successor);
  EXPECT_TRUE(supervisor.attachWithPool(1, "later")->waitFor([&] {
    return has(supervisor.log(), "was killed by signal 9 (Killed): its calls in flight are lost");
  })) << supervisor.log();
  expectService(supervisor);
  supervisor.signal(SIGTERM);
  EXPECT_EQ(supervisor.waitForEnd(), 0);
}

TEST(SuccessionDeath, OfASupervisorThatDrainsIsInTheLog) {
  SharedSupervisor supervisor({"--workers", "1"});
  const pid_t present = supervisor.supervisorPid();
  Busy busy(supervisor);
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  acknowledge(busy.client());
  supervisorAfter(supervisor, present);
  ::kill(present, SIGKILL);
  EXPECT_TRUE(busy.client().waitForEnd());
  EXPECT_TRUE(supervisor.attachWithPool(1, "later")->waitFor([&] {
    return has(supervisor.log(),
               "the supervisor that was replaced was killed by signal 9 (Killed): its calls in "
               "flight are lost");
  })) << supervisor.log();
}

TEST(SuccessionDeath, OfTheSuccessorThatServesEndsTheServiceWithItsSignal) {
  SharedSupervisor supervisor({"--workers", "1"});
  const pid_t present = supervisor.supervisorPid();
  Busy busy(supervisor);
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  acknowledge(busy.client());
  ::kill(supervisorAfter(supervisor, present), SIGKILL);
  EXPECT_EQ(supervisor.waitForEnd(), 128 + SIGKILL);
  EXPECT_TRUE(busy.client().waitForEnd());
}

TEST(SuccessionDeath, OfTheGuardianEndsBothSupervisors) {
  SharedSupervisor supervisor({"--workers", "1"});
  const pid_t present = supervisor.supervisorPid();
  Busy busy(supervisor);
  ASSERT_TRUE(supervisor.act(Action::kRestart).done);
  acknowledge(busy.client());
  const pid_t successor = supervisorAfter(supervisor, present);
  supervisor.signal(SIGKILL);
  EXPECT_EQ(supervisor.waitForEnd(), 128 + SIGKILL);
  EXPECT_TRUE(waitUntilDead(present, kPatience));
  EXPECT_TRUE(waitUntilDead(successor, kPatience));
  EXPECT_TRUE(supervisor.mark().waitUntilNoneIsLeft(milliseconds(2000)));
}

/// A process dies at a point of the hand-over. The address is served then, or the service has
/// ended.
class AtPoint : public testing::TestWithParam<const char*> {};

TEST_P(AtPoint, LeavesAnAddressThatIsServedOrTheServicesEnd) {
  const TemporaryFolder folder;
  const std::string trap = folder.path() + "/trap";
  ::setenv("ISOPOOL_SUPERVISOR_CRASH_POINT", trap.c_str(), 1);
  const std::string point = GetParam();
  const auto set = [&] { std::ofstream(trap) << point; };
  const bool ofSuccessor = point == "servesSent";
  if (!ofSuccessor) set();
  {
    SharedSupervisor supervisor({"--workers", "1"});
    const pid_t present = supervisor.supervisorPid();
    const auto idle = supervisor.attachWithPool(1, "idle");
    if (ofSuccessor) set();
    ASSERT_TRUE(supervisor.connect().valid());
    supervisor.request(Action::kRestart);
    if (idle->waitFor([&] { return idle->drain().has_value() || idle->controlEnded(); })) {
      idle->send(ipc::AcknowledgeDrain{});
    }
    const auto reached = [&] {
      for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        if (entry.path().extension() == ".reached") return true;
      }
      return false;
    };
    const auto deadline = Clock::now() + kPatience;
    while (!reached() && Clock::now() < deadline) ::poll(nullptr, 0, 5);
    ASSERT_TRUE(reached()) << "no process reached the point";
    // Either the guardian ends soon, or another supervisor than the dead one serves.
    const auto code = supervisor.waitForEnd(milliseconds(1000));
    if (code) {
      EXPECT_EQ(*code, 128 + SIGKILL);
      EXPECT_TRUE(supervisor.mark().waitUntilNoneIsLeft(milliseconds(2000)));
    } else {
      supervisorAfter(supervisor, present);
      expectService(supervisor);
    }
  }
  ::unsetenv("ISOPOOL_SUPERVISOR_CRASH_POINT");
}

INSTANTIATE_TEST_SUITE_P(SuccessionDeath, AtPoint,
                         testing::Values("successorAsked", "successorSpawned", "servesSent",
                                         "successorAnnounced", "successorSeen", "clientReleased"),
                         [](const auto& point) { return std::string(point.param); });

}  // namespace
}  // namespace isopool::tests
