// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/loop/kernel_event_loop.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/zygote_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/ipc/crowded_user.h"

namespace isopool::supervisor {
namespace {

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    auto [ours, theirs] = ipc::ControlSocket::makePair();
    const int small = 4096;
    ::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    peer_ = ipc::ControlSocket(std::move(theirs));
    connection_ = std::make_unique<Connection>(
        loop_, std::move(ours),
        Connection::Events{
            .frame = [this](ipc::Frame& frame) { frames_.push_back(std::move(frame)); },
            .over = [this](const std::string& reason) { over_ = reason; },
            .sent = [this] { ++sent_; }});
  }

  std::vector<ipc::Frame> readAll() {
    std::vector<ipc::Frame> frames;
    for (int idle = 0; idle < 3;) {
      const bool got = peer_.receive() == ipc::ReceiveResult::kOk;
      while (auto frame = peer_.next()) frames.push_back(std::move(*frame));
      idle = got || loop_.poll() > 0 ? 0 : idle + 1;
    }
    return frames;
  }

  base::KernelEventLoop loop_;
  ipc::ControlSocket peer_;
  std::unique_ptr<Connection> connection_;
  std::vector<ipc::Frame> frames_;
  std::optional<std::string> over_;
  int sent_ = 0;
};

TEST_F(ConnectionTest, APeerThatIsHungUpOnSeesTheEndBehindTheLastMessage) {
  connection_->send(ipc::ClosePool{1});
  connection_->hangUp();
  pollfd watched{peer_.fd(), POLLRDHUP, 0};
  EXPECT_EQ(::poll(&watched, 1, 0), 1);
  EXPECT_EQ(peer_.receive(), ipc::ReceiveResult::kOk);
  EXPECT_TRUE(peer_.next().has_value());
  EXPECT_EQ(peer_.receive(), ipc::ReceiveResult::kPeerGone);
}

TEST_F(ConnectionTest, MessagesOfAClosedPeerAreReadAfterAFailedSend) {
  peer_.send(ipc::WorkerForked{7, 1234});
  peer_.close();
  connection_->send(ipc::ClosePool{1});
  connection_->readNow();
  ASSERT_EQ(frames_.size(), 1u);
  EXPECT_EQ(ipc::decodeMessage<ipc::WorkerForked>(frames_[0]).processId, 1234);
  EXPECT_FALSE(over_);
  while (loop_.poll() > 0) {
  }
  EXPECT_EQ(over_, "");
}

TEST_F(ConnectionTest, QueuedMessagesKeepTheirOrderAndDescriptors) {
  const std::string padding(3000, 'x');
  for (uint32_t number = 0; number < 100; ++number) {
    const base::Fd object = ipc::createMemoryObject("test", (number + 1) * ipc::kPageBytes);
    connection_->send(ipc::LoadPackage{number, 0, padding}, {object.get()});
  }
  EXPECT_LT(sent_, 100);
  const std::vector<ipc::Frame> frames = readAll();
  ASSERT_EQ(frames.size(), 100u);
  EXPECT_EQ(sent_, 100);
  for (uint32_t number = 0; number < 100; ++number) {
    EXPECT_EQ(ipc::decodeMessage<ipc::LoadPackage>(frames[number]).package, number);
    ASSERT_EQ(frames[number].descriptors.size(), 1u);
    EXPECT_TRUE(ipc::memoryObjectHas(frames[number].descriptors[0], (number + 1) * ipc::kPageBytes,
                                     ipc::Seal::kFixedSize));
  }
}

TEST_F(ConnectionTest, MessageCanBeOfferedAgainAfterALackOfDescriptors) {
  const base::Fd object = ipc::createMemoryObject("test", ipc::kPageBytes);
  const std::string padding(3000, 'x');
  uint32_t last = 0;
  const auto offer = [&] {
    const bool taken = connection_->offer(ipc::LoadPackage{last + 1, 0, padding}, {object.get()});
    if (taken) ++last;
    return taken;
  };
  while (connection_->waiting() == 0) ASSERT_TRUE(offer());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  testing::internal::CaptureStderr();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool taken = offer() || offer();
  const bool heldUp = connection_->heldUp();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(taken);
  EXPECT_TRUE(heldUp);
  const std::string why = "isopoold has reached its limit of open files";
  const size_t first = said.find(why);
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find(why, first + 1), std::string::npos) << said;
  EXPECT_TRUE(offer());
  EXPECT_FALSE(connection_->heldUp());
  const std::vector<ipc::Frame> frames = readAll();
  ASSERT_EQ(frames.size(), last);
  EXPECT_EQ(ipc::decodeMessage<ipc::LoadPackage>(frames.back()).package, last);
  EXPECT_FALSE(over_);
}

TEST_F(ConnectionTest, EndsWithoutWaitingIfThePeerReadsNothing) {
  for (uint32_t number = 0; number < 20'000; ++number) {
    connection_->send(ipc::Failure{std::string(1000, 'x')});
  }
  EXPECT_FALSE(over_) << "reported from within send()";
  loop_.poll();
  ASSERT_TRUE(over_);
  EXPECT_NE(*over_, "");
}

TEST_F(ConnectionTest, TellsOnceThatThePeerIsGoneAfterItsLastMessage) {
  peer_.send(ipc::ClosePool{7});
  peer_.close();
  loop_.run();
  ASSERT_EQ(frames_.size(), 1u);
  EXPECT_EQ(over_, "");
}

TEST_F(ConnectionTest, GarbageEndsIt) {
  ASSERT_EQ(::write(peer_.fd(), "0123456789abcdef", 16), 16);
  loop_.run();
  ASSERT_TRUE(over_);
  EXPECT_EQ(*over_, "not an isopool control frame");
}

TEST_F(ConnectionTest, MayBeDestroyedWhileItsHandlersAreOnTheirWay) {
  peer_.send(ipc::ClosePool{7});
  connection_->send(ipc::Failure{std::string(100'000, 'x')});
  connection_.reset();
  loop_.poll();
  EXPECT_TRUE(frames_.empty());
}

/// Runs in a process of its own, whose error stream is the pipe `errorStream`.
[[noreturn]] void sendBesideACrowd(int errorStream) {
  ::dup2(errorStream, STDERR_FILENO);
  const tests::CrowdedUser crowd;
  if (!crowd.crowded()) ::_exit(1);
  auto [ours, theirs] = ipc::ControlSocket::makePair();
  base::KernelEventLoop loop;
  Connection connection(
      loop, std::move(ours),
      {.frame = [](ipc::Frame&) {}, .over = [](const std::string&) {}, .sent = nullptr});
  for (const uint32_t pool : {1, 2}) {
    ::dprintf(STDERR_FILENO, "message %u\n", pool);
    connection.send(ipc::ClosePool{pool}, {theirs.get()});
  }
  for (int round = 0; round < 10; ++round) loop.poll();
  if (!connection.heldUp()) ::_exit(3);
  ::_exit(connection.waiting() == 0 ? 2 : 0);
}

TEST(CrowdedConnection, SaysOnceWhyAMessageWaits) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const base::Fd read(pipe[0]);
  base::Fd write(pipe[1]);
  const pid_t child = ::fork();
  ASSERT_NE(child, -1);
  if (child == 0) sendBesideACrowd(write.get());
  write.close();
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(read.get(), part, sizeof part)) > 0;) text.append(part, got);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const std::string why = "a message has to wait: the kernel passes on no more descriptors";
  const size_t said = text.find(why);
  EXPECT_NE(said, std::string::npos) << text;
  EXPECT_EQ(text.find(why, said + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace isopool::supervisor
