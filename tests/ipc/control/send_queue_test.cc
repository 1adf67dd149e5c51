// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control/send_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "ipc/control/client_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/ipc/crowded_user.h"

namespace isopool::ipc {
namespace {

using State = SendQueue::State;

class SendQueueTest : public ::testing::Test {
 protected:
  SendQueueTest() {
    auto [one, other] = ControlSocket::makePair();
    socket_ = ControlSocket(std::move(one));
    peer_ = ControlSocket(std::move(other));
  }

  static OutgoingFrame frameOf(uint32_t number, size_t descriptors = 0) {
    return encodeMessage(ClosePool{number}, descriptors);
  }
  /// Sends until the socket accepts no more.
  void fill() {
    State state = State::kEmpty;
    while (state == State::kEmpty) {
      state = queue_.send(socket_, encodeMessage(Failure{std::string(100'000, 'f')}, 0), {});
    }
    ASSERT_EQ(state, State::kFull);
  }
  /// Sends and reads until nothing is left; returns the pool numbers of the received messages.
  std::vector<uint32_t> drain() {
    std::vector<uint32_t> pools;
    for (;;) {
      const State state = queue_.flush(socket_);
      const ReceiveResult result = peer_.receive();
      while (auto frame = peer_.next()) {
        if (frame->type == MessageType::kClosePool) {
          pools.push_back(decodeMessage<ClosePool>(*frame).pool);
        }
      }
      if (state == State::kEmpty && result == ReceiveResult::kWouldBlock) return pools;
    }
  }

  ControlSocket socket_;
  ControlSocket peer_;
  int sent_ = 0;
  SendQueue queue_{[this] { ++sent_; }};
};

TEST_F(SendQueueTest, SendsAtOnceWhatTheSocketTakes) {
  EXPECT_EQ(queue_.send(socket_, frameOf(1), {}), State::kEmpty);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(sent_, 1);
  EXPECT_EQ(drain(), (std::vector<uint32_t>{1}));
}

TEST_F(SendQueueTest, KeepsTheOrderOfWhatWaits) {
  fill();
  for (uint32_t number = 1; number <= 3; ++number) {
    EXPECT_EQ(queue_.send(socket_, frameOf(number), {}), State::kFull);
  }
  EXPECT_EQ(drain(), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(SendQueueTest, HoldsDescriptorsOfItsOwnUntilTheyHaveLeft) {
  fill();
  {
    const base::Fd object = createMemoryObject("test", kPageBytes);
    EXPECT_EQ(queue_.send(socket_, frameOf(1, 1), {object.get()}), State::kFull);
  }
  queue_.flush(socket_);
  base::Fd received;
  while (!received.valid()) {
    queue_.flush(socket_);
    peer_.receive();
    while (auto frame = peer_.next()) {
      if (!frame->descriptors.empty()) received = std::move(frame->descriptors.front());
    }
  }
  EXPECT_TRUE(memoryObjectHas(received, kPageBytes, Seal::kFixedSize));
}

TEST_F(SendQueueTest, TakesBackWhatHasNotBegunToLeave) {
  fill();
  const SendQueue::Subject first{7, 1};
  const SendQueue::Subject second{7, 2};
  queue_.send(socket_, frameOf(1), {}, first);
  queue_.send(socket_, frameOf(2), {}, second);
  EXPECT_TRUE(queue_.revoke(first));
  EXPECT_FALSE(queue_.revoke(first));
  EXPECT_FALSE(queue_.revoke({8, 2}));
  EXPECT_EQ(drain(), (std::vector<uint32_t>{2}));
  EXPECT_FALSE(queue_.revoke(second));
}

TEST_F(SendQueueTest, IsBoundedInBytes) {
  fill();
  State state = State::kFull;
  size_t bytes = 0;
  while (state == State::kFull) {
    state = queue_.send(socket_, encodeMessage(Failure{std::string(900'000, 'f')}, 0), {});
    bytes += 900'000;
    ASSERT_LT(bytes, size_t{64} << 20);
  }
  EXPECT_EQ(state, State::kOverflow);
  EXPECT_GT(bytes, size_t{8} << 20);
}

TEST_F(SendQueueTest, SaysThatThePeerIsGone) {
  fill();
  peer_.close();
  EXPECT_EQ(queue_.flush(socket_), State::kPeerGone);
  EXPECT_TRUE(queue_.empty());
}

/// Sends while the kernel accepts no more descriptors, and afterwards. Returns 0, or the number of
/// the step that failed.
int sendBesideACrowd() {
  auto crowd = std::make_unique<tests::CrowdedUser>();
  if (!crowd->crowded()) return 1;
  auto [one, other] = ControlSocket::makePair();
  ControlSocket socket(std::move(one));
  ControlSocket peer(std::move(other));
  SendQueue queue;
  if (queue.send(socket, encodeMessage(ClosePool{2}, 1), {peer.fd()}) != State::kCrowded) return 2;
  // The order is kept, although this message would find room.
  if (queue.send(socket, encodeMessage(ClosePool{3}, 0), {}) != State::kCrowded) return 3;
  if (queue.size() != 2) return 4;
  crowd.reset();
  // The kernel updates its count of descriptors a little later.
  for (int i = 0; i < 1000 && queue.flush(socket) != State::kEmpty; ++i) ::usleep(5000);
  // One receive ends after a message with descriptors.
  peer.receive();
  const auto first = peer.next();
  peer.receive();
  const auto second = peer.next();
  if (!first || first->descriptors.size() != 1 || !second) return 5;
  return decodeMessage<ClosePool>(*second).pool == 3 ? 0 : 6;
}

TEST(SendQueueCrowded, WaitsUntilTheKernelPassesDescriptorsOnAgain) {
  const pid_t child = ::fork();
  ASSERT_NE(child, -1);
  if (child == 0) ::_exit(sendBesideACrowd());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the step of sendBesideACrowd() that failed";
}

}  // namespace
}  // namespace isopool::ipc
