// SPDX-License-Identifier: BSD-3-Clause
// How a shared supervisor ends, what then happens at its address, and the deaths of its
// processes and programs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/unix_address.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/operator_messages.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

TEST(Drain, LetsRunningCallsEndAndExitsWithZero) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  client->post(worker, "!spin 300");
  supervisor.signal(SIGTERM);
  ASSERT_TRUE(client->waitFor([&] { return client->drain().has_value(); }));
  client->send(ipc::AcknowledgeDrain{});
  EXPECT_FALSE(supervisor.connect().valid()) << "it has given up its address";
  ASSERT_TRUE(client->waitFor([&] { return client->worker(worker).end->completionReady(); }));
  EXPECT_EQ(supervisor.waitForEnd(), 0);
  EXPECT_FALSE(std::filesystem::exists(supervisor.address()));
}

TEST(Drain, RefusesAProgramThatHadConnectedBeforeWithTheReason) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  client->post(client->serving(1, 0), "!hang");
  ControlClient late(supervisor.connect());
  supervisor.report();  // the supervisor has accepted the connection
  supervisor.signal(SIGTERM);
  ASSERT_TRUE(client->waitFor([&] { return client->drain().has_value(); }));
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  late.send(hello, {pidfd.get()});
  ASSERT_TRUE(late.waitForEnd());
  EXPECT_NE(late.failure().value_or("").find("serves no new programs"), std::string::npos);
}

TEST(Drain, EndsAfterDrainTimeoutDespiteARunningCall) {
  SharedSupervisor supervisor({"--workers", "1", "--drain-timeout", "200ms"});
  const auto client = supervisor.attachWithPool(1);
  client->post(client->serving(1, 0), "!hang");
  supervisor.signal(SIGTERM);
  EXPECT_EQ(supervisor.waitForEnd(), 0);
  EXPECT_NE(supervisor.log().find("ISOPOOL_DRAIN_TIMEOUT"), std::string::npos);
}

TEST(Drain, ThatKillsACallHasEndedTheConnectionBefore) {
  SharedSupervisor supervisor({"--workers", "1", "--drain-timeout", "100ms"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  client->post(worker, "!hang");
  supervisor.signal(SIGTERM);
  ASSERT_TRUE(base::awaitReadable(client->worker(worker).pidfd.get(), milliseconds(5000)));
  pollfd connection{client->controlFd(), POLLRDHUP, 0};
  EXPECT_EQ(::poll(&connection, 1, 0), 1);
  EXPECT_EQ(supervisor.waitForEnd(), 0);
}

TEST(Drain, OfASupervisorWhoseProgramsLeaveAtTheSameMomentExitsWithZero) {
  SharedSupervisor supervisor({"--workers", "1"});
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(supervisor.attachWithPool(1));
  // The supervisor is stopped, so that it finds all of this at once.
  const pid_t process = supervisor.supervisorPid();
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  clients.clear();
  ASSERT_EQ(::kill(process, SIGTERM), 0);
  ASSERT_EQ(::kill(process, SIGCONT), 0);
  EXPECT_EQ(supervisor.waitForEnd(), 0);
}

TEST(Drain, OfASupervisorThatHasNotBegunToServeExitsWithZero) {
  SharedSupervisor supervisor;
  supervisor.signal(SIGTERM);
  ASSERT_EQ(supervisor.waitForEnd(), 0);
  // The signal is pending before the program starts.
  supervisor.startAskedToEnd();
  EXPECT_EQ(supervisor.waitForEnd(), 0);
}

TEST(Address, IsServedByOneSupervisorOnly) {
  SharedSupervisor supervisor({"--workers", "1"});
  const std::string command = std::string(ISOPOOLD) + " --listen " + supervisor.address() +
                              " --worker " + PLAIN_WORKER + " --workers 1 2>/dev/null";
  EXPECT_NE(std::system(command.c_str()), 0);
  const auto client = supervisor.attachWithPool(1);
  EXPECT_EQ(client->call(client->serving(1, 0), "undisturbed"), "undisturbed");
}

TEST(Address, OfALiveSupervisorWithoutItsSocketNamesTheSupervisor) {
  SharedSupervisor supervisor({"--workers", "1"});
  const int32_t holder = supervisor.report().processId;
  std::filesystem::remove(supervisor.address());
  const std::string output = supervisor.folder() + "/output";
  const std::string command = std::string(ISOPOOLD) + " --listen " + supervisor.address() +
                              " --worker " + PLAIN_WORKER + " --workers 1 2>" + output;
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  std::ostringstream text;
  text << std::ifstream(output).rdbuf();
  EXPECT_NE(text.str().find("another supervisor (pid " + std::to_string(holder) +
                            ") holds the lock " + supervisor.address() + ".lock"),
            std::string::npos)
      << text.str();
}

TEST(Address, IsNotTakenFromAnotherProgram) {
  SharedSupervisor supervisor({"--workers", "1"});
  const std::string path = supervisor.folder() + "/foreign";
  const auto name = base::UnixAddress::ofPath(path).value();
  const base::Fd foreign(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(foreign.get(), name.get(), name.bytes()), 0);
  ASSERT_EQ(::listen(foreign.get(), 16), 0);
  const std::string output = supervisor.folder() + "/output";
  const std::string command = "timeout -s TERM 5 " + std::string(ISOPOOLD) + " --listen " + path +
                              " --worker " + PLAIN_WORKER + " --workers 1 2>" + output;
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  std::ostringstream text;
  text << std::ifstream(output).rdbuf();
  EXPECT_NE(text.str().find("another process serves it"), std::string::npos) << text.str();
  const base::Fd caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(caller.get(), name.get(), name.bytes()), 0);
}

TEST(Address, IsNotRemovedIfASuccessorServesIt) {
  SharedSupervisor supervisor({"--workers", "1"});
  // An operator may clear the folder of a running supervisor.
  std::filesystem::remove(supervisor.address());
  std::filesystem::remove(supervisor.address() + ".lock");
  const auto name = base::UnixAddress::ofPath(supervisor.address()).value();
  const base::Fd successor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(successor.get(), name.get(), name.bytes()), 0);
  supervisor.signal(SIGTERM);
  EXPECT_EQ(supervisor.waitForEnd(), 0);
  EXPECT_TRUE(std::filesystem::exists(supervisor.address()));
}

TEST(Address, IsTakenOverFromADeadSupervisor) {
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  ::kill(supervisor.supervisorPid(), SIGKILL);
  EXPECT_EQ(supervisor.waitForEnd(), 128 + SIGKILL);
  EXPECT_TRUE(client->waitForEnd());
  EXPECT_TRUE(supervisor.mark().waitUntilNoneIsLeft(milliseconds(1000)));
  ASSERT_TRUE(std::filesystem::exists(supervisor.address()));
  const std::string command = "timeout -s TERM 1 " + std::string(ISOPOOLD) + " --listen " +
                              supervisor.address() + " --worker " + PLAIN_WORKER +
                              " --workers 1 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 124);  // it served until SIGTERM came
}

/// A supervisor that was killed is started again while this process plays the killed one, which
/// ends when the next one has looked for the lock.
class DyingPredecessor : public testing::Test {
 protected:
  void SetUp() override {
    ::kill(supervisor_.pid(), SIGKILL);
    ASSERT_EQ(supervisor_.waitForEnd(), 128 + SIGKILL);
    ASSERT_TRUE(supervisor_.mark().waitUntilNoneIsLeft(milliseconds(2000)));
    lock_ = base::Fd(::open((supervisor_.address() + ".lock").c_str(), O_RDWR | O_CLOEXEC));
    // A process whose memory is freed may still have its descriptors.
    const auto late = Clock::now() + milliseconds(2000);
    while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      ASSERT_LT(Clock::now(), late);
      ::poll(nullptr, 0, 1);
    }
  }
  void expectTakenOver() {
    bool asked = false;
    std::thread predecessor([&] {
      const auto deadline = Clock::now() + milliseconds(2000);
      while (!asked && Clock::now() < deadline) {
        for (const pid_t pid : supervisor_.mark().processes()) {
          asked = asked || descriptorsCalled(pid, ".lock") > 0;
        }
      }
      lock_.close();
      socket_.close();
    });
    supervisor_.start();
    predecessor.join();
    EXPECT_TRUE(asked);
    ASSERT_TRUE(supervisor_.waitForReport([](const ipc::Report& report) {
      return report.processId != 0;
    })) << supervisor_.log();
    const auto client = supervisor_.attachWithPool(1);
    EXPECT_EQ(client->call(client->serving(1, 0), "taken over"), "taken over");
  }

  SharedSupervisor supervisor_{{"--workers", "1"}};
  base::Fd lock_;
  base::Fd socket_;
};

TEST_F(DyingPredecessor, IsWaitedForWhileItHasTheLock) { expectTakenOver(); }

TEST_F(DyingPredecessor, IsWaitedForWhileItServes) {
  std::filesystem::remove(supervisor_.address());
  const auto name = base::UnixAddress::ofPath(supervisor_.address()).value();
  socket_ = base::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(socket_.get(), name.get(), name.bytes()), 0);
  ASSERT_EQ(::listen(socket_.get(), 16), 0);
  expectTakenOver();
}

TEST(SharedDeath, OfTheGuardianEndsAll) {
  SharedSupervisor supervisor({"--workers", "2"});
  const auto client = supervisor.attachWithPool(2);
  supervisor.signal(SIGKILL);
  EXPECT_TRUE(client->waitForEnd(milliseconds(1000)));
  supervisor.waitForEnd();
  EXPECT_TRUE(supervisor.mark().waitUntilNoneIsLeft(milliseconds(1000)));
}

TEST(SharedDeath, OfTheZygoteIsNotNoticedByCallers) {
  SharedSupervisor supervisor({"--workers", "2"});
  const auto client = supervisor.attachWithPool(2);
  const pid_t zygote = supervisor.report().zygoteProcessId;
  ::kill(zygote, SIGKILL);
  for (uint32_t slot = 0; slot < 2; ++slot) {
    EXPECT_EQ(client->call(client->serving(1, slot), "x"), "x");
  }
  EXPECT_TRUE(supervisor.waitForReport([&](const ipc::Report& report) {
    return report.zygoteRestarts == 1 && report.zygoteProcessId != zygote &&
           report.zygoteProcessId != 0;
  }));
  const uint64_t worker = client->serving(1, 0);
  client->killAndReport(worker);
  EXPECT_TRUE(client->waitFor([&] { return client->serving(1, 0) != worker; }));
}

TEST(SharedDeath, OfAProgramUnderLoadLeavesNothing) {
  SharedSupervisor supervisor({"--workers", "2", "--grace", "50ms"});
  const pid_t program = ::fork();
  ASSERT_GE(program, 0);
  if (program == 0) {
    const auto client = supervisor.attachWithPool(2, "doomed");
    for (;;) client->call(client->serving(1, 0), "load");
  }
  ASSERT_TRUE(supervisor.waitForReport([](const ipc::Report& report) {
    const auto* doomed = clientNamed(report, "doomed");
    return doomed != nullptr && doomed->completedCalls > 100;
  }));
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
  EXPECT_TRUE(supervisor.waitForReport(
      [](const ipc::Report& report) {
        return report.clients.empty() &&
               std::all_of(report.workers.begin(), report.workers.end(),
                           [](const auto& each) { return each.clients == 0; });
      },
      milliseconds(1000)));
  EXPECT_EQ(supervisor.report().restarts, 0u);
}

}  // namespace
}  // namespace isopool::tests
