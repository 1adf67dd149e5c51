// SPDX-License-Identifier: BSD-3-Clause
// The limits of a shared supervisor: the program that meets one is refused, and receives the
// reason.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/system_call.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/operator_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

TEST(SharedLimit, OfModelsRefusesTheNextAndNamesTheKnob) {
  SharedSupervisor supervisor({"--workers", "1", "--client-models", "1"});
  const auto client = supervisor.attachWithPool(1);
  const base::Fd package = packageOf('x');
  client->send(
      ipc::LoadPackage{
          .package = 1, .bytes = ipc::kPageBytes, .name = "a", .digestLow = 1, .digestHigh = 1},
      {package.get()});
  client->send(
      ipc::LoadPackage{
          .package = 2, .bytes = ipc::kPageBytes, .name = "b", .digestLow = 2, .digestHigh = 2},
      {package.get()});
  ASSERT_TRUE(client->waitFor([&] { return client->held().count(2) != 0; }));
  EXPECT_EQ(client->held().at(1).refusal, "");
  EXPECT_NE(client->held().at(2).refusal.find("limits.models"), std::string::npos);
  EXPECT_EQ(supervisor.report().clients.front().refusals, 1u);
  client->send(ipc::UnloadPackage{1});
  client->send(
      ipc::LoadPackage{
          .package = 3, .bytes = ipc::kPageBytes, .name = "c", .digestLow = 3, .digestHigh = 3},
      {package.get()});
  ASSERT_TRUE(client->waitFor([&] { return client->held().count(3) != 0; }));
  EXPECT_EQ(client->held().at(3).refusal, "");
}

TEST(SharedLimit, OfMemoryRefusesSegmentsPackagesAndRoomForResults) {
  SharedSupervisor supervisor(
      {"--workers", "1", "--spares", "0", "--output-arena", "64KiB", "--client-memory", "1MiB"});
  const auto client = supervisor.attachWithPool(1);
  const uint64_t worker = client->serving(1, 0);
  const base::Fd small = ipc::createMemoryObject("test", 512 << 10);
  const base::Fd large = ipc::createMemoryObject("test", 1 << 20);
  client->send(ipc::DeclareInputSegment{1, 512 << 10}, {small.get()});
  client->send(ipc::DeclareInputSegment{2, 1 << 20}, {large.get()});
  std::string known;
  EXPECT_TRUE(client->waitFor([&] {
    known = client->call(worker, "!known").value_or("");
    return known.find("#1!a segment for inputs of 1048576 bytes is refused") == 0;
  })) << known;
  EXPECT_NE(known.find("limits.memory"), std::string::npos);
  const base::Fd package = packageOf('x', 200);
  client->send(ipc::LoadPackage{.package = 1,
                                .bytes = 200 * ipc::kPageBytes,
                                .name = "p",
                                .digestLow = 1,
                                .digestHigh = 1},
               {package.get()});
  ASSERT_TRUE(client->waitFor([&] { return client->held().count(1) != 0; }));
  EXPECT_NE(client->held().at(1).refusal.find("limits.memory"), std::string::npos);
  client->call(worker, "!want 600000");
  ASSERT_TRUE(client->waitFor([&] {
    return client->call(worker, "!segments").value_or("").find("limits.memory") !=
           std::string::npos;
  }));
  EXPECT_EQ(client->call(worker, "unharmed"), "unharmed");
}

TEST(SharedLimit, OfClientsRefusesTheNextOneAndSaysWhy) {
  SharedSupervisor supervisor({"--workers", "1", "--max-clients", "2"});
  const auto first = supervisor.attach();
  const auto second = supervisor.attach();
  ControlClient third(supervisor.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  third.send(hello, {pidfd.get()});
  EXPECT_TRUE(third.waitForEnd());
  EXPECT_NE(third.failure().value_or("").find("max_clients"), std::string::npos);
  EXPECT_EQ(supervisor.report().clients.size(), 2u);  // an operator is still served
}

// Sends Hello and returns the reason with which the supervisor refuses it; empty if it does not.
std::string refusalOf(const SharedSupervisor& supervisor) {
  ControlClient client(supervisor.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  client.send(hello, {pidfd.get()});
  EXPECT_TRUE(client.waitFor([&] { return client.isWelcome() || client.controlEnded(); }));
  return client.failure().value_or("");
}

TEST(SharedLimit, OfClientsOfAUserRefusesTheNextOneAndSaysWhy) {
  SharedSupervisor supervisor({"--workers", "1", "--max-clients-per-user", "2"});
  const auto first = supervisor.attach();
  auto second = supervisor.attach();
  const std::string refusal = refusalOf(supervisor);
  EXPECT_NE(refusal.find("2 programs of user " + std::to_string(::getuid())), std::string::npos)
      << refusal;
  EXPECT_NE(refusal.find("max_clients_per_user"), std::string::npos) << refusal;
  const ipc::Report report = supervisor.report();  // an operator is still served
  EXPECT_EQ(report.clients.size(), 2u);
  EXPECT_EQ(report.refusedPrograms, 1u);
  second.reset();
  ASSERT_TRUE(
      supervisor.waitForReport([](const ipc::Report& each) { return each.clients.size() == 1; }));
  EXPECT_EQ(refusalOf(supervisor), "");
}

TEST(SharedLimit, OfClientsOfAUserIsNotMetByAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  SharedSupervisor supervisor(
      {"--workers", "1", "--max-clients-per-user", "1", "--socket-group", "nogroup"});
  std::filesystem::permissions(supervisor.folder(), std::filesystem::perms::all);
  const auto client = supervisor.attach();
  EXPECT_NE(refusalOf(supervisor), "");
  const pid_t stranger = ::fork();
  ASSERT_GE(stranger, 0);
  if (stranger == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    ::_exit(refusalOf(supervisor).empty() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(stranger, &status, 0);
  EXPECT_EQ(status, 0);
}

/// A user who may connect and is no operator opens connections and sends nothing.
class SilentUser {
 public:
  static constexpr int kConnections = 40;

  explicit SilentUser(const SharedSupervisor& supervisor) {
    base::checkSystemCall(::pipe2(told_, O_CLOEXEC), "pipe2");
    base::checkSystemCall(::pipe2(life_, O_CLOEXEC), "pipe2");
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::close(life_[1]);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    connect(supervisor);
    char byte = 0;
    [[maybe_unused]] const ssize_t got = ::read(life_[0], &byte, 1);
    ::_exit(0);
  }
  ~SilentUser() {
    for (const int end : {told_[0], told_[1], life_[0], life_[1]}) ::close(end);
    ::waitpid(pid_, nullptr, 0);
  }
  SilentUser(const SilentUser&) = delete;
  SilentUser& operator=(const SilentUser&) = delete;

  /// Waits until all of its connections are accepted or refused. The last refusal's reason.
  std::string refusal() const {
    char text[512]{};
    const ssize_t got = ::read(told_[0], text, sizeof text - 1);
    return got > 0 ? text : "";
  }

 private:
  void connect(const SharedSupervisor& supervisor) const {
    std::vector<std::unique_ptr<ControlClient>> clients;
    for (int i = 0; i < kConnections; ++i) {
      clients.push_back(std::make_unique<ControlClient>(supervisor.connect()));
    }
    // They are accepted in their order, so the last one is decided last.
    ControlClient& last = *clients.back();
    last.waitFor([&] { return last.controlEnded(); });
    const std::string reason = last.failure().value_or("") + " ";
    [[maybe_unused]] const ssize_t sent = ::write(told_[1], reason.data(), reason.size());
    char byte = 0;
    [[maybe_unused]] const ssize_t got = ::read(life_[0], &byte, 1);
  }

  int told_[2]{};
  int life_[2]{};
  pid_t pid_ = -1;
};

class SharedLimitOfConnections : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  }
  static SharedSupervisor start(std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--workers", "1", "--socket-group", "nogroup",  //
                               "--handshake-timeout", "60s"});
    return SharedSupervisor(flags);
  }
};

TEST_F(SharedLimitOfConnections, LeavesPlacesForOperatorsWhenAUserOpensConnectionsThatSendNothing) {
  const SharedSupervisor supervisor = start({"--max-clients", "3"});
  std::filesystem::permissions(supervisor.folder(), std::filesystem::perms::all);
  const SilentUser user(supervisor);
  const std::string refusal = user.refusal();
  EXPECT_NE(refusal.find("3 connections are open, which is the limit (max_clients, "
                         "ISOPOOL_MAX_CLIENTS); 32 more are for root and the supervisor's user"),
            std::string::npos)
      << refusal;
  EXPECT_EQ(supervisor.report().clients.size(), 3u);
}

TEST_F(SharedLimitOfConnections, OfAUserCountsConnectionsThatSendNothing) {
  const SharedSupervisor supervisor = start({"--max-clients-per-user", "4"});
  std::filesystem::permissions(supervisor.folder(), std::filesystem::perms::all);
  const SilentUser user(supervisor);
  const std::string refusal = user.refusal();
  EXPECT_NE(refusal.find("6 connections of user 65534 are open, which is the limit of one user: "
                         "max_clients_per_user (ISOPOOL_MAX_CLIENTS_PER_USER), and 2 for reports"),
            std::string::npos)
      << refusal;
  const auto program = supervisor.attach();
  EXPECT_EQ(supervisor.report().clients.size(), 7u);
}

TEST(SharedLimit, IsReadAgainOnSighup) {
  SharedSupervisor supervisor({"--workers", "1"}, "[limits]\nmodels = 1\n");
  const auto client = supervisor.attachWithPool(1);
  const base::Fd package = packageOf('x');
  const auto load = [&](uint32_t number) {
    client->send(ipc::LoadPackage{.package = number,
                                  .bytes = ipc::kPageBytes,
                                  .name = "m",
                                  .digestLow = number,
                                  .digestHigh = 0},
                 {package.get()});
    EXPECT_TRUE(client->waitFor([&] { return client->held().count(number) != 0; }));
    return client->held().at(number).refusal.empty();
  };
  EXPECT_TRUE(load(1));
  EXPECT_FALSE(load(2));
  supervisor.writeSettings("[limits]\nmodels = 2\n");
  supervisor.signal(SIGHUP);
  ASSERT_TRUE(client->waitFor(
      [&] { return supervisor.log().find("the settings were reloaded") != std::string::npos; }));
  EXPECT_TRUE(load(3));
  supervisor.writeSettings("[limits]\nmodles = 9\n");
  supervisor.signal(SIGHUP);
  ASSERT_TRUE(client->waitFor(
      [&] { return supervisor.log().find("no setting has changed") != std::string::npos; }));
  EXPECT_FALSE(load(4));
}

}  // namespace
}  // namespace isopool::tests
