// SPDX-License-Identifier: BSD-3-Clause
// Programs connect while others end: the supervisor drops no new program because an old one ended.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/parent_death.h"
#include "ipc/control/client_messages.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

base::Fd ownPidfd() { return base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))); }

void sayHello(ControlClient& client) {
  const base::Fd pidfd = ownPidfd();
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  hello.processId = ::getpid();
  client.send(hello, {pidfd.get()});
}

/// Starts a process that exits with the value that `body` returns. The kernel kills it if this
/// process ends.
pid_t startProcess(const std::function<int()>& body) {
  const pid_t self = ::getpid();
  const pid_t process = ::fork();
  EXPECT_GE(process, 0);
  if (process != 0) return process;
  base::endWithParent(self);
  int code = 1;
  try {
    code = body();
  } catch (const std::exception&) {
  }
  ::_exit(code);
}

/// A process with many connections. It ends in two steps: closeAll() closes the connections, end()
/// kills the process.
class ManyConnections {
 public:
  ManyConnections(const SharedSupervisor& supervisor, size_t count) {
    int orders[2];
    int answers[2];
    EXPECT_EQ(::pipe2(orders, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(answers, O_CLOEXEC), 0);
    pid_ = startProcess([&] {
      ::close(orders[1]);
      std::vector<std::unique_ptr<ControlClient>> clients;
      while (clients.size() < count) clients.push_back(supervisor.attach("many"));
      char order = 'a';
      [[maybe_unused]] ssize_t done = ::write(answers[1], &order, 1);
      done = ::read(orders[0], &order, 1);
      clients.clear();
      done = ::write(answers[1], &order, 1);
      return ::pause();
    });
    order_ = base::Fd(orders[1]);
    answer_ = base::Fd(answers[0]);
    ::close(orders[0]);
    ::close(answers[1]);
    EXPECT_TRUE(answered());
  }
  ~ManyConnections() { end(); }
  ManyConnections(const ManyConnections&) = delete;
  ManyConnections& operator=(const ManyConnections&) = delete;

  void closeAll() {
    EXPECT_EQ(::write(order_.get(), "c", 1), 1);
    EXPECT_TRUE(answered());
  }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  bool answered() const {
    pollfd readable{answer_.get(), POLLIN, 0};
    char answer = 0;
    return ::poll(&readable, 1, 20'000) == 1 && ::read(answer_.get(), &answer, 1) == 1;
  }

  pid_t pid_ = -1;
  base::Fd order_;
  base::Fd answer_;
};

// The event loop takes at most 128 events from the kernel at once. When the stopped
// supervisor continues, the first batch holds the closed sockets. The second, which it
// fetches before it forgets their clients, holds the Hello of the new clients and the end of
// the old clients' process.
TEST(Churn, AProgramThatSaysHelloWhileOthersEndIsServed) {
  constexpr size_t kBatch = 128;
  SharedSupervisor supervisor({"--workers", "1", "--max-clients", "1000"});
  for (int round = 0; round < 5; ++round) {
    ManyConnections ending(supervisor, kBatch);
    std::vector<std::unique_ptr<ControlClient>> coming;
    for (int i = 0; i < 16; ++i) {
      coming.push_back(std::make_unique<ControlClient>(supervisor.connect()));
    }
    // The supervisor has accepted the new connections: it has answered a later one, of an operator.
    const pid_t process = supervisor.supervisorPid();
    ASSERT_EQ(::kill(process, SIGSTOP), 0);
    ending.closeAll();
    for (const auto& client : coming) sayHello(*client);
    ending.end();
    ASSERT_EQ(::kill(process, SIGCONT), 0);
    size_t dropped = 0;
    for (const auto& client : coming) {
      const bool settled =
          client->waitFor([&] { return client->isWelcome() || client->controlEnded(); });
      // The round trip also finds a client that is dropped after its Welcome.
      if (settled && !client->controlEnded()) client->send(ipc::RequestStatistics{1});
      client->waitFor([&] { return client->controlEnded(); }, milliseconds(settled ? 20 : 0));
      if (!client->isWelcome() || client->controlEnded()) ++dropped;
    }
    EXPECT_EQ(dropped, 0u) << "of " << coming.size() << " in round " << round;
  }
}

/// The bytes of the message without the last one.
template <typename Message>
std::string allButTheEndOf(const Message& message) {
  const ipc::OutgoingFrame frame = ipc::encodeMessage(message, 0);
  return std::string(frame.bytes.data(), frame.bytes.size() - 1);
}

TEST(Churn, AProgramThatStopsInTheMiddleOfAMessageDelaysNoOther) {
  SharedSupervisor supervisor({"--workers", "1"});
  std::vector<std::unique_ptr<ControlClient>> halfway;
  const auto aNewProgramIsServed = [&](const char* after) {
    const auto other = supervisor.attachWithPool(1, "other");
    EXPECT_EQ(other->call(other->serving(1, 0), "served"), "served") << after;
  };
  halfway.push_back(std::make_unique<ControlClient>(supervisor.connect()));
  halfway.back()->sendBytes(allButTheEndOf(ipc::Hello{}));
  aNewProgramIsServed("half a Hello");
  halfway.push_back(supervisor.attach());
  halfway.back()->sendBytes(allButTheEndOf(ipc::OpenPool{1, 1}));
  aNewProgramIsServed("half an OpenPool");
  halfway.push_back(supervisor.attach());
  halfway.back()->answersIntroductions = false;
  halfway.back()->send(ipc::OpenPool{1, 1});
  ASSERT_TRUE(halfway.back()->waitFor([&] { return !halfway.back()->workers().empty(); }));
  const uint64_t introduced = halfway.back()->workers().begin()->first;
  halfway.back()->sendBytes(allButTheEndOf(ipc::ChannelMapped{introduced}));
  aNewProgramIsServed("half a ChannelMapped");
  halfway.push_back(supervisor.attachWithPool(1));
  halfway.back()->sendBytes(allButTheEndOf(ipc::LoadPackage{
      .package = 1, .bytes = 4096, .name = "model", .digestLow = 1, .digestHigh = 1}));
  aNewProgramIsServed("half a LoadPackage");
  halfway.clear();
  aNewProgramIsServed("the ends of all of them");
}

TEST(Churn, ThousandsOfConnectionsAreServedWhileProgramsEnd) {
  constexpr int kConnections = 3000;
  SharedSupervisor supervisor({"--workers", "2", "--max-clients", "1000"});
  const auto keeper = supervisor.attachWithPool(2, "keeper");
  const uint64_t worker = keeper->serving(1, 0);
  // Each process starts programs that attach and end, one after the other.
  std::vector<pid_t> loops;
  for (int i = 0; i < 3; ++i) {
    loops.push_back(startProcess([&] {
      int status = 0;
      while (status == 0) {
        const pid_t program = startProcess([&] {
          const auto client = supervisor.attachWithPool(1, "brief");
          return client->call(client->serving(1, 0), "x") == "x" ? 0 : 1;
        });
        ::waitpid(program, &status, 0);
      }
      return 1;
    }));
  }
  int dropped = 0;
  for (int i = 0; i < kConnections; ++i) {
    ControlClient client(supervisor.connect());
    sayHello(client);
    const bool welcome = client.waitFor([&] { return client.isWelcome() || client.controlEnded(); },
                                        milliseconds(20'000)) &&
                         client.isWelcome();
    if (!welcome) ++dropped;
  }
  EXPECT_EQ(dropped, 0) << "of " << kConnections << " connections";
  for (const pid_t loop : loops) {
    int status = 0;
    EXPECT_EQ(::waitpid(loop, &status, WNOHANG), 0) << "one of its programs was dropped";
    ::kill(loop, SIGKILL);
    ::waitpid(loop, &status, 0);
  }
  EXPECT_EQ(supervisor.report().restarts, 0u);
  EXPECT_EQ(keeper->call(worker, "never disturbed"), "never disturbed");
}

}  // namespace
}  // namespace isopool::tests
