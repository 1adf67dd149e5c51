// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/memory/memory_object.h"
#include "supervisor/kernel_event_loop.h"

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
        Connection::Events{[this](ipc::Frame& frame) { frames_.push_back(std::move(frame)); },
                           [this](const std::string& reason) { over_ = reason; },
                           [this] { ++sent_; }});
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

  KernelEventLoop loop_;
  ipc::ControlSocket peer_;
  std::unique_ptr<Connection> connection_;
  std::vector<ipc::Frame> frames_;
  std::optional<std::string> over_;
  int sent_ = 0;
};

TEST_F(ConnectionTest, WhatThePeerSaidBeforeItWentIsReadThoughASendFindsItGone) {
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

TEST_F(ConnectionTest, WhatTheSocketDoesNotTakeLeavesLaterInOrderAndWithItsDescriptors) {
  const std::string padding(3000, 'x');
  for (uint32_t number = 0; number < 100; ++number) {
    const ipc::Fd object = ipc::createMemoryObject("test", (number + 1) * ipc::kPageBytes);
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

TEST_F(ConnectionTest, AMessageAboutWhatHasEndedIsTakenBackUnlessAPartOfItHasLeft) {
  const ipc::Fd object = ipc::createMemoryObject("test", ipc::kPageBytes);
  const std::string padding(3000, 'x');
  uint32_t last = 0;
  while (connection_->idle()) {
    const ipc::PackageId package(++last);
    connection_->sendAbout(package, 1, ipc::LoadPackage{last, 0, padding}, {object.get()});
  }
  for (uint32_t number = last + 1; number <= last + 3; ++number) {
    connection_->sendAbout(ipc::PackageId(number), 1, ipc::LoadPackage{number, 0, padding},
                           {object.get()});
  }
  EXPECT_FALSE(connection_->revoke(ipc::PackageId(1), 1)) << "it has left";
  EXPECT_TRUE(connection_->revoke(ipc::PackageId(last + 2), 1));
  EXPECT_FALSE(connection_->revoke(ipc::PackageId(last + 2), 1)) << "it was taken back before";
  EXPECT_FALSE(connection_->revoke(ipc::PackageId(last + 3), 2)) << "another client's";
  std::vector<uint32_t> came;
  for (const ipc::Frame& frame : readAll()) {
    came.push_back(ipc::decodeMessage<ipc::LoadPackage>(frame).package);
  }
  std::vector<uint32_t> expected;
  for (uint32_t number = 1; number <= last + 3; ++number) {
    if (number != last + 2) expected.push_back(number);
  }
  EXPECT_EQ(came, expected);
  EXPECT_TRUE(connection_->idle());
}

TEST_F(ConnectionTest, APeerThatReadsNothingIsGivenUpAndNeverWaitedFor) {
  for (uint32_t number = 0; number < 20'000; ++number) {
    connection_->send(ipc::Failure{std::string(1000, 'x')});
  }
  EXPECT_FALSE(over_) << "told from within send()";
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
  EXPECT_EQ(*over_, "no isopool control frame");
}

TEST_F(ConnectionTest, MayBeDestroyedWhileItsHandlersAreOnTheirWay) {
  peer_.send(ipc::ClosePool{7});
  connection_->send(ipc::Failure{std::string(100'000, 'x')});
  connection_.reset();
  loop_.poll();
  EXPECT_TRUE(frames_.empty());
}

}  // namespace
}  // namespace isopool::supervisor
