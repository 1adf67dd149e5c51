// SPDX-License-Identifier: BSD-3-Clause
// Peers that a shared supervisor must refuse.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/unix_address.h"
#include "ipc/control/client_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

class SharedGarbage : public testing::Test {
 protected:
  ~SharedGarbage() override {
    // After each test, the other program and the supervisor are as before.
    EXPECT_EQ(other_->call(other_->serving(1, 0), "unharmed"), "unharmed");
    EXPECT_EQ(supervisor_.report().clients.size(), 1u);
    EXPECT_EQ(supervisor_.report().restarts, 0u);
  }
  /// The supervisor logs after it has hung up.
  bool isLoggedOnce(const std::string& text) {
    return other_->waitFor([&] { return timesLogged(text) == 1; });
  }
  size_t timesLogged(const std::string& text) const {
    const std::string log = supervisor_.log();
    size_t times = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++times;
    return times;
  }

  SharedSupervisor supervisor_{{"--workers", "1", "--handshake-timeout", "300ms"}};
  std::unique_ptr<ControlClient> other_ = supervisor_.attachWithPool(1, "other");
};

TEST_F(SharedGarbage, BytesThatAreNoFrame) {
  ControlClient stranger(supervisor_.connect());
  stranger.sendBytes("GET / HTTP/1.1\r\nHost: isopool\r\n\r\n");
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_TRUE(isLoggedOnce(" is refused: ")) << supervisor_.log();
}

TEST_F(SharedGarbage, HalfAMessageAndThenNothing) {
  ControlClient stranger(supervisor_.connect());
  msgpack::sbuffer body;
  msgpack::pack(body, ipc::Hello{});
  const ipc::OutgoingFrame frame =
      ipc::encodeFrame(ipc::MessageType::kHello, body.data(), body.size(), 1);
  stranger.sendBytes(std::string(frame.bytes.data(), frame.bytes.size() / 2));
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_NE(stranger.failure().value_or("").find("ISOPOOL_HANDSHAKE_TIMEOUT"), std::string::npos);
  EXPECT_TRUE(isLoggedOnce(" is refused: ")) << supervisor_.log();
}

TEST_F(SharedGarbage, NothingAtAll) {
  ControlClient stranger(supervisor_.connect());
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_NE(stranger.failure().value_or("").find("300 ms"), std::string::npos);
}

TEST_F(SharedGarbage, TenMegabytesOfNesting) {
  ControlClient stranger(supervisor_.connect());
  // A body of the largest size that a frame may have, all of it nested arrays; and a larger one.
  const std::string nesting(ipc::kMaxBodyBytes, '\x91');
  ipc::OutgoingFrame frame =
      ipc::encodeFrame(ipc::MessageType::kHello, nesting.data(), nesting.size(), 0);
  size_t sent = 0;
  while (sent < frame.bytes.size()) {
    const ssize_t written =
        ::write(stranger.controlFd(), frame.bytes.data() + sent, frame.bytes.size() - sent);
    if (written > 0) sent += static_cast<size_t>(written);
    if (written < 0 && errno != EAGAIN) break;
  }
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_THROW(ipc::encodeFrame(ipc::MessageType::kHello, nesting.data(), 10u << 20, 0),
               ipc::ProtocolError);
}

TEST_F(SharedGarbage, DescriptorsThatItShouldNotSend) {
  ControlClient stranger(supervisor_.connect());
  const base::Fd object = ipc::createMemoryObject("isopool-test-stray", ipc::kPageBytes);
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  stranger.send(hello, {object.get()});
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_NE(stranger.failure().value_or("").find("not a pidfd of the client"), std::string::npos);
  ControlClient another(supervisor_.connect());
  another.send(hello, {object.get(), object.get(), object.get(), object.get()});
  EXPECT_TRUE(another.waitForEnd());
  EXPECT_EQ(descriptorsCalled(supervisor_.supervisorPid(), "isopool-test-stray"), 0u);
}

TEST_F(SharedGarbage, APidfdOfAnotherProcess) {
  ControlClient stranger(supervisor_.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, supervisor_.pid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  stranger.send(hello, {pidfd.get()});
  EXPECT_TRUE(stranger.waitForEnd());
}

TEST_F(SharedGarbage, AProgramThatEndedBeforeItWasServedIsNotRefused) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ControlClient stranger(supervisor_.connect());
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  stranger.send(hello, {pidfd.get()});
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_EQ(stranger.failure(), std::nullopt);
}

TEST_F(SharedGarbage, AnOlderClientReceivesBothVersions) {
  ControlClient stranger(supervisor_.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  msgpack::sbuffer body;
  msgpack::packer<msgpack::sbuffer>(body).pack_array(3).pack(1).pack(1).pack(::getpid());
  const ipc::OutgoingFrame frame =
      ipc::encodeFrame(ipc::MessageType::kHello, body.data(), body.size(), 0);
  stranger.sendBytes(std::string(frame.bytes.data(), frame.bytes.size()));
  EXPECT_TRUE(stranger.waitForEnd());
  const std::string versions = "protocol 1 and " + std::to_string(ipc::kOldestProtocolVersion) +
                               " to " + std::to_string(ipc::kProtocolVersion);
  EXPECT_NE(stranger.failure().value_or("").find(versions), std::string::npos)
      << stranger.failure().value_or("");
}

TEST_F(SharedGarbage, AProgramsRequestFromAnOperator) {
  ControlClient stranger(supervisor_.connect());
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.role = static_cast<uint32_t>(ipc::ClientRole::kOperator);
  stranger.send(hello, {pidfd.get()});
  stranger.send(ipc::OpenPool{1, 1});
  EXPECT_TRUE(stranger.waitForEnd());
}

TEST(SharedPeer, OfAnotherUserIsRefusedUnlessItsGroupIsLetIn) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  SharedSupervisor supervisor({"--workers", "1"});
  // The file modes allow every user, so that the supervisor itself has to refuse.
  std::filesystem::permissions(supervisor.folder(), std::filesystem::perms::all);
  std::filesystem::permissions(supervisor.address(), std::filesystem::perms::all);
  const pid_t stranger = ::fork();
  ASSERT_GE(stranger, 0);
  if (stranger == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    ControlClient client(supervisor.connect());
    const bool refused = client.waitForEnd() && client.failure().value_or("").find(
                                                    "user 65534 is neither") != std::string::npos;
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ::waitpid(stranger, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedPeer, ThatEndedBeforeItsConnectionWasAcceptedIsNotRefused) {
  SharedSupervisor supervisor({"--workers", "1", "--sandbox", "strict"});
  const pid_t supervisorPid = supervisor.supervisorPid();
  // This process keeps the socket, so that the connection outlives the process that made it.
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto address = base::UnixAddress::ofPath(supervisor.address()).value();
  ASSERT_EQ(::kill(supervisorPid, SIGSTOP), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::connect(socket.get(), address.get(), address.bytes()) == 0 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(::kill(supervisorPid, SIGCONT), 0);
  ControlClient stranger{ipc::ControlSocket(std::move(socket))};
  EXPECT_TRUE(stranger.waitForEnd());
  EXPECT_EQ(stranger.failure(), std::nullopt);
  EXPECT_EQ(supervisor.report().refusedConnections, 0u);
}

}  // namespace
}  // namespace isopool::tests
