// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/service_manager.h"
#include "base/unix_address.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>

namespace isopool::supervisor {
namespace {

using std::chrono::microseconds;

base::Fd boundSocket(int type, const std::string& name) {
  base::Fd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto address = base::UnixAddress::ofPathOrAbstractName(name).value();
  EXPECT_EQ(::bind(socket.get(), address.get(), address.bytes()), 0);
  return socket;
}

/// A service manager with a socket at a path or, with '@', at an abstract address.
class ServiceManagerTest : public testing::TestWithParam<const char*> {
 protected:
  ServiceManagerTest()
      : name_(GetParam() + std::to_string(::getpid())), socket_(boundSocket(SOCK_DGRAM, name_)) {
    ::setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  }
  ~ServiceManagerTest() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
    if (name_.front() == '/') std::filesystem::remove(name_);
  }

  std::string received() {
    char text[4096];
    const ssize_t length = ::recv(socket_.get(), text, sizeof text, 0);
    return length < 0 ? "nothing" : std::string(text, static_cast<size_t>(length));
  }

  const std::string name_;
  base::Fd socket_;
};

TEST_P(ServiceManagerTest, ReceivesEachState) {
  ServiceManager manager = ServiceManager::fromEnvironment();
  EXPECT_TRUE(manager.listening());
  manager.ready("serving 4 workers");
  EXPECT_EQ(received(), "READY=1\nSTATUS=serving 4 workers");
  manager.status("two\nlines");
  EXPECT_EQ(received(), "STATUS=two lines");
  manager.stopping("draining");
  EXPECT_EQ(received(), "STOPPING=1\nSTATUS=draining");
  manager.alive();
  EXPECT_EQ(received(), "WATCHDOG=1");
  EXPECT_EQ(received(), "nothing");
}

TEST_P(ServiceManagerTest, IsToldWhenAReloadBegan) {
  const auto now = [] {
    return std::chrono::duration_cast<microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  ServiceManager manager = ServiceManager::fromEnvironment();
  const auto before = now();
  manager.reloading();
  const auto after = now();
  const std::string text = received();
  const std::string start = "RELOADING=1\nMONOTONIC_USEC=";
  ASSERT_TRUE(text.starts_with(start)) << text;
  const auto told = std::stoll(text.substr(start.size()));
  EXPECT_GE(told, before);
  EXPECT_LE(told, after);
}

TEST_P(ServiceManagerTest, IsNotInherited) {
  ::setenv("WATCHDOG_USEC", "1000", 1);
  const ServiceManager manager = ServiceManager::fromEnvironment();
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);
  EXPECT_EQ(std::getenv("WATCHDOG_USEC"), nullptr);
}

TEST_P(ServiceManagerTest, WantsASignOfLifeTwiceInItsWatchdogsTime) {
  EXPECT_FALSE(ServiceManager::fromEnvironment().signOfLifePeriod());
  ::setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "30000000", 1);
  EXPECT_EQ(ServiceManager::fromEnvironment().signOfLifePeriod(), microseconds(15'000'000));
  ::setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "30000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  EXPECT_TRUE(ServiceManager::fromEnvironment().signOfLifePeriod());
  ::setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "30000000", 1);
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_FALSE(ServiceManager::fromEnvironment().signOfLifePeriod()) << "it is for another process";
}

TEST_P(ServiceManagerTest, ReceivesTheLastStateAfterItsQueueWasFull) {
  ServiceManager manager = ServiceManager::fromEnvironment();
  std::string last;
  // Fills the queue of its socket. alive() does not block when the queue is full.
  for (int i = 0; i < 2000; ++i) manager.alive();
  manager.ready("first");
  manager.stopping("second");
  while (received() == "WATCHDOG=1") {
  }
  EXPECT_EQ(received(), "nothing");
  manager.alive();
  EXPECT_EQ(received(), "STOPPING=1\nSTATUS=second");
  EXPECT_EQ(received(), "WATCHDOG=1");
  manager.alive();
  EXPECT_EQ(received(), "WATCHDOG=1");
}

TEST_P(ServiceManagerTest, MayGoAwayAndComeBack) {
  ServiceManager manager = ServiceManager::fromEnvironment();
  socket_.close();
  if (name_.front() == '/') std::filesystem::remove(name_);
  manager.ready("not received");
  socket_ = boundSocket(SOCK_DGRAM, name_);
  manager.alive();
  EXPECT_EQ(received(), "READY=1\nSTATUS=not received");
}

INSTANTIATE_TEST_SUITE_P(At, ServiceManagerTest,
                         testing::Values("/tmp/isopool-manager-", "@isopool-manager-"),
                         [](const auto& each) {
                           return each.param[0] == '/' ? "aPath" : "anAbstractAddress";
                         });

TEST(NoServiceManager, ReceivesNothing) {
  ::unsetenv("NOTIFY_SOCKET");
  ServiceManager manager = ServiceManager::fromEnvironment();
  EXPECT_FALSE(manager.listening());
  manager.ready("");
  manager.alive();
  for (const std::string& wrong : {std::string("vsock:2:1"), "/" + std::string(200, 'x')}) {
    ::setenv("NOTIFY_SOCKET", wrong.c_str(), 1);
    EXPECT_FALSE(ServiceManager::fromEnvironment().listening()) << wrong;
  }
}

/// Runs takeActivatedSocket() in a process that has `handedOver` at 3, 4, ... Returns the path of
/// the socket that it found, or the text of the refusal.
std::string activated(const std::vector<int>& handedOver, const char* count,
                      const char* pid = nullptr) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int output = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 100);
    std::vector<int> sources;
    for (const int each : handedOver) sources.push_back(::fcntl(each, F_DUPFD, 100));
    for (size_t i = 0; i < sources.size(); ++i) ::dup2(sources[i], static_cast<int>(i) + 3);
    ::setenv("LISTEN_FDS", count, 1);
    ::setenv("LISTEN_FDNAMES", "isopoold.socket", 1);
    ::setenv("LISTEN_PID", pid != nullptr ? pid : std::to_string(::getpid()).c_str(), 1);
    std::string text;
    try {
      const base::Fd socket = takeActivatedSocket();
      text = socket.valid() ? pathOfSocket(socket) : "none";
      if (socket.valid() && ::fcntl(socket.get(), F_GETFD) != FD_CLOEXEC) text += " inherited";
      if (std::getenv("LISTEN_FDS") != nullptr) text += " handed on";
    } catch (const ActivationError& error) {
      text = error.what();
    }
    [[maybe_unused]] const ssize_t written = ::write(output, text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[512];
  const ssize_t length = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return std::string(text, static_cast<size_t>(length > 0 ? length : 0));
}

class ActivationTest : public testing::Test {
 protected:
  ActivationTest() : path_("/tmp/isopool-activated-" + std::to_string(::getpid())) {}
  ~ActivationTest() override { std::filesystem::remove(path_); }
  base::Fd listening(int type = SOCK_STREAM) {
    base::Fd socket = boundSocket(type, path_);
    EXPECT_EQ(::listen(socket.get(), 8), 0);
    return socket;
  }
  const std::string path_;
};

TEST_F(ActivationTest, HandsOverTheListeningSocket) {
  EXPECT_EQ(activated({listening().get()}, "1"), path_);
}

TEST_F(ActivationTest, IsNotForAnotherProcess) {
  EXPECT_EQ(activated({listening().get()}, "1", "1"), "none");
}

TEST_F(ActivationTest, RefusesMoreThanOneSocket) {
  const base::Fd socket = listening();
  EXPECT_EQ(activated({socket.get(), socket.get()}, "2"),
            "the service manager handed over 2 sockets (isopoold.socket), but isopoold serves one: "
            "give its socket unit one ListenStream");
}

TEST_F(ActivationTest, RefusesWhatIsNoListeningUnixStreamSocket) {
  const std::string refusal =
      "isopoold.socket that the service manager handed over is not a listening Unix stream socket: "
      "its socket unit needs ListenStream=/PATH and Accept=no";
  const base::Fd internet(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::listen(internet.get(), 1), 0);
  EXPECT_EQ(activated({internet.get()}, "1"), refusal);
  EXPECT_EQ(activated({boundSocket(SOCK_DGRAM, path_).get()}, "1"), refusal);
  std::filesystem::remove(path_);
  EXPECT_EQ(activated({boundSocket(SOCK_STREAM, path_).get()}, "1"), refusal) << "does not listen";
  std::filesystem::remove(path_);
  EXPECT_EQ(activated({listening(SOCK_SEQPACKET).get()}, "1"), refusal);
  const base::Fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(activated({file.get()}, "1"), refusal);
}

}  // namespace
}  // namespace isopool::supervisor
