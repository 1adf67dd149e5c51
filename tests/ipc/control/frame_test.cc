// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control/frame.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ipc/control/client_messages.h"
#include "ipc/control/worker_messages.h"
#include "ipc/memory/memory_object.h"
#include "tests/ipc/seed.h"

namespace isopool::ipc {
namespace {

using std::chrono::milliseconds;

struct Header {
  uint32_t magic = kFrameMagic;
  uint32_t type = static_cast<uint32_t>(MessageType::kOpenPool);
  uint32_t bodyBytes = 0;
  uint32_t descriptors = 0;
};

std::string bytesOf(const Header& header, const std::string& body = {}) {
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes + body;
}

template <typename Message>
std::string bytesOf(const Message& message) {
  const OutgoingFrame frame = encodeMessage(message, 0);
  return {frame.bytes.begin(), frame.bytes.end()};
}

template <typename Pack>
Frame frameOf(MessageType type, Pack&& pack) {
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> packer(buffer);
  pack(packer);
  Frame frame;
  frame.type = type;
  frame.body.assign(buffer.data(), buffer.data() + buffer.size());
  return frame;
}

size_t openDescriptors() {
  size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) != -1 ? 1 : 0;
  return count;
}

class FrameTest : public testing::Test {
 protected:
  FrameTest() {
    auto [ours, theirs] = ControlSocket::makePair();
    socket_ = ControlSocket(std::move(ours));
    raw_ = std::move(theirs);
  }
  /// Sends bytes that no ControlSocket would send, with copies of one descriptor.
  void sendRaw(const std::string& bytes, size_t descriptors = 0) {
    const std::vector<int> fds(descriptors, raw_.get());
    std::vector<char> control(CMSG_SPACE(std::max<size_t>(descriptors, 1) * sizeof(int)));
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptors > 0) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), descriptors * sizeof(int));
    }
    ASSERT_EQ(::sendmsg(raw_.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  /// Reads all available data.
  ReceiveResult receiveAll() {
    ReceiveResult result = ReceiveResult::kOk;
    while (result == ReceiveResult::kOk) result = socket_.receive();
    return result;
  }

  ControlSocket socket_;
  base::Fd raw_;
};

TEST_F(FrameTest, MessagesComeInOrderWithTheirDescriptors) {
  ControlSocket peer(std::move(raw_));
  for (uint32_t number = 1; number <= 20; ++number) {
    const base::Fd object = createMemoryObject("test", number * kPageBytes);
    ASSERT_EQ(peer.send(DeclareInputSegment{number, 7}, {object.get()}), SendResult::kSent);
    ASSERT_EQ(peer.send(ClosePool{number}), SendResult::kSent);
  }
  EXPECT_EQ(receiveAll(), ReceiveResult::kWouldBlock);
  for (uint32_t number = 1; number <= 20; ++number) {
    auto declared = socket_.next();
    ASSERT_TRUE(declared);
    EXPECT_EQ(decodeMessage<DeclareInputSegment>(*declared).segment, number);
    ASSERT_EQ(declared->descriptors.size(), 1u);
    EXPECT_TRUE(memoryObjectHas(declared->descriptors[0], number * kPageBytes, Seal::kFixedSize));
    EXPECT_EQ(::fcntl(declared->descriptors[0].get(), F_GETFD), FD_CLOEXEC);
    auto closed = socket_.next();
    ASSERT_TRUE(closed);
    EXPECT_EQ(decodeMessage<ClosePool>(*closed).pool, number);
    EXPECT_TRUE(closed->descriptors.empty());
  }
  EXPECT_FALSE(socket_.next());
}

TEST_F(FrameTest, AFrameMayComeByteByByte) {
  const std::string bytes = bytesOf(OpenPool{3, 4}) + bytesOf(Failure{std::string(300, 'x')});
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(i < bytesOf(OpenPool{3, 4}).size() && socket_.next()) << i;
    sendRaw(bytes.substr(i, 1));
    ASSERT_EQ(receiveAll(), ReceiveResult::kWouldBlock);
  }
  EXPECT_EQ(decodeMessage<OpenPool>(*socket_.next()).workers, 4u);
  EXPECT_EQ(decodeMessage<Failure>(*socket_.next()).text.size(), 300u);
  EXPECT_FALSE(socket_.next());
}

TEST_F(FrameTest, AFrameThatIsCutShortIsNeverGiven) {
  const std::string bytes = bytesOf(Failure{"the end is missing"});
  sendRaw(bytes.substr(0, bytes.size() - 1));
  raw_.close();
  EXPECT_EQ(receiveAll(), ReceiveResult::kPeerGone);
  EXPECT_FALSE(socket_.next());
}

TEST_F(FrameTest, TheLargestBodyPassesAndALargerOneIsRefusedOnBothSides) {
  const std::vector<char> body(kMaxBodyBytes + 1, 'b');
  EXPECT_THROW(encodeFrame(MessageType::kFailure, body.data(), body.size(), 0), ProtocolError);
  EXPECT_THROW(encodeFrame(MessageType::kFailure, body.data(), 1, kMaxFrameDescriptors + 1),
               ProtocolError);

  ControlSocket peer(std::move(raw_));
  std::thread sender([&] {
    EXPECT_EQ(peer.sendFrame(MessageType::kFailure, body.data(), kMaxBodyBytes, nullptr, 0,
                             milliseconds(10'000)),
              SendResult::kSent);
  });
  std::optional<Frame> frame;
  while (!frame && socket_.waitReadable(milliseconds(10'000))) {
    receiveAll();
    frame = socket_.next();
  }
  sender.join();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->body.size(), kMaxBodyBytes);
}

TEST_F(FrameTest, AHeaderThatCannotBeIsRefusedBeforeItsBodyCame) {
  Header tooLong;
  tooLong.bodyBytes = kMaxBodyBytes + 1;
  Header endless;
  endless.bodyBytes = UINT32_MAX;
  Header manyDescriptors;
  manyDescriptors.descriptors = kMaxFrameDescriptors + 1;
  Header otherMagic;
  otherMagic.magic ^= 1;
  for (const Header& header : {tooLong, endless, manyDescriptors, otherMagic}) {
    auto [ours, theirs] = ControlSocket::makePair();
    socket_ = ControlSocket(std::move(ours));
    raw_ = std::move(theirs);
    sendRaw(bytesOf(header));
    EXPECT_THROW(receiveAll(), ProtocolError);
  }
}

TEST_F(FrameTest, AFrameWithoutItsDescriptorsIsRefused) {
  Header header;
  header.descriptors = 2;
  sendRaw(bytesOf(header), 1);
  EXPECT_THROW(receiveAll(), ProtocolError);
}

TEST_F(FrameTest, DescriptorsThatNoFrameNamesAreRefused) {
  sendRaw(bytesOf(OpenPool{1, 1}), 1);
  EXPECT_THROW(receiveAll(), ProtocolError);
}

TEST_F(FrameTest, DescriptorsAheadOfTheirFrameDoNotPileUp) {
  // Sends single bytes of a frame that is never complete. Each carries many descriptors.
  const size_t before = openDescriptors();
  Header header;
  header.bodyBytes = 1000;
  const std::string bytes = bytesOf(header);
  try {
    for (int i = 0; i < 3; ++i) {
      sendRaw(bytes.substr(static_cast<size_t>(i), 1), 200);
      receiveAll();
    }
    ADD_FAILURE() << openDescriptors() - before << " descriptors and no error";
  } catch (const ProtocolError&) {
  }
  socket_ = ControlSocket();
  EXPECT_EQ(openDescriptors(), before - 1);
}

TEST_F(FrameTest, DescriptorsThatAreLostForLackOfRoomAreSeen) {
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  Header header;
  header.descriptors = 4;
  sendRaw(bytesOf(header), 4);
  // No descriptor beyond the highest that is open now.
  rlimit tight = former;
  tight.rlim_cur = static_cast<rlim_t>(std::max(raw_.get(), socket_.fd())) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  EXPECT_THROW(receiveAll(), ProtocolError);
  ::setrlimit(RLIMIT_NOFILE, &former);
}

// One read continues from messages without descriptors into the first message that has some.
TEST_F(FrameTest, DescriptorsOfALaterMessageThatDoNotFitAreSeenBeforeTheyAreRead) {
  ControlSocket peer(std::move(raw_));
  const base::Fd object = createMemoryObject("test", kPageBytes);
  peer.send(ClosePool{1});
  peer.send(DeclareInputSegment{1, kPageBytes}, {object.get()});
  EXPECT_TRUE(socket_.descriptorsFit());
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  rlimit tight = former;
  tight.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  const bool fit = socket_.descriptorsFit();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &former), 0);
  EXPECT_FALSE(fit);
  receiveAll();
  EXPECT_EQ(socket_.next()->type, MessageType::kClosePool);
  EXPECT_EQ(socket_.next()->descriptors.size(), 1u) << "descriptorsFit() has removed nothing";
}

TEST_F(FrameTest, AFrameThatTheSocketDoesNotTakeAtOnceLeavesInParts) {
  ControlSocket peer(std::move(raw_));
  const base::Fd object = createMemoryObject("test", kPageBytes);
  const int descriptor = object.get();
  OutgoingFrame frame = encodeMessage(Failure{std::string(900'000, 'f')}, 1);
  int parts = 1;
  while (peer.trySend(frame, &descriptor, 1) == SendResult::kWouldBlock) {
    EXPECT_TRUE(frame.begun());
    receiveAll();
    ++parts;
  }
  receiveAll();
  EXPECT_GT(parts, 1);
  auto received = socket_.next();
  ASSERT_TRUE(received);
  EXPECT_EQ(decodeMessage<Failure>(*received).text.size(), 900'000u);
  EXPECT_EQ(received->descriptors.size(), 1u);
}

TEST_F(FrameTest, APeerThatDoesNotReadCostsNoMoreThanThePatience) {
  ControlSocket peer(std::move(raw_));
  SendResult result = SendResult::kSent;
  for (int i = 0; i < 1000 && result == SendResult::kSent; ++i) {
    result = peer.send(Failure{std::string(100'000, 'f')}, {}, milliseconds(10));
  }
  EXPECT_EQ(result, SendResult::kWouldBlock);
}

TEST_F(FrameTest, ClosedPeerIsReportedWithoutASignal) {
  raw_.close();
  EXPECT_EQ(receiveAll(), ReceiveResult::kPeerGone);
  EXPECT_EQ(socket_.send(ClosePool{1}), SendResult::kPeerGone);
}

TEST(DecodeMessage, OfAnotherTypeIsRefusedWithBothNumbers) {
  Frame frame = frameOf(MessageType::kClosePool, [](auto& packer) { packer.pack_array(0); });
  try {
    decodeMessage<OpenPool>(frame);
    FAIL() << "no error";
  } catch (const ProtocolError& error) {
    EXPECT_STREQ(error.what(), "control message of type 3 where type 2 was expected");
  }
}

TEST(DecodeMessage, RefusesABodyThatIsNoArrayOfTheFields) {
  using Packer = msgpack::packer<msgpack::sbuffer>;
  const std::vector<std::function<void(Packer&)>> bodies = {
      [](Packer& packer) { packer.pack_map(0); },
      [](Packer& packer) { packer.pack(7); },
      [](Packer& packer) { packer.pack(std::string("pool")); },
      [](Packer& packer) { packer.pack_array(2).pack(1).pack("two"); },
      [](Packer& packer) { packer.pack_array(2).pack(-1).pack(2); },
      [](Packer& packer) { packer.pack_array(2).pack(uint64_t{1} << 32).pack(2); },
      [](Packer& packer) { packer.pack_array(2).pack(1.5).pack(2); },
      [](Packer& packer) { packer.pack_array(2).pack_nil().pack(2); },
      [](Packer&) {},
  };
  for (size_t i = 0; i < bodies.size(); ++i) {
    EXPECT_THROW(decodeMessage<OpenPool>(frameOf(MessageType::kOpenPool, bodies[i])), ProtocolError)
        << "body " << i;
  }
}

TEST(DecodeMessage, RefusesBytesBehindItsEnd) {
  Frame frame = frameOf(MessageType::kOpenPool,
                        [](auto& packer) { packer.pack_array(2).pack(1).pack(2).pack_nil(); });
  EXPECT_THROW(decodeMessage<OpenPool>(frame), ProtocolError);
}

TEST(DecodeMessage, RefusesABodyThatIsCutShortAnywhere) {
  const Frame whole = frameOf(MessageType::kIntroduceWorker, [](auto& packer) {
    packer.pack(IntroduceWorker{uint64_t{1} << 40, 12345, uint64_t{1} << 33, true});
  });
  EXPECT_EQ(decodeMessage<IntroduceWorker>(whole).processId, 12345);
  for (size_t bytes = 0; bytes < whole.body.size(); ++bytes) {
    Frame cut;
    cut.type = whole.type;
    cut.body.assign(whole.body.begin(), whole.body.begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_THROW(decodeMessage<IntroduceWorker>(cut), ProtocolError) << bytes;
  }
}

TEST(DecodeMessage, RefusesNestingWithoutEnd) {
  Frame frame;
  frame.type = MessageType::kOpenPool;
  frame.body.assign(500'000, static_cast<char>(0x91));  // an array of an array of ...
  EXPECT_THROW(decodeMessage<OpenPool>(frame), ProtocolError);
}

TEST(DecodeMessage, RefusesLengthsThatTheBodyDoesNotHave) {
  const std::vector<std::string> bodies = {
      std::string("\xdd\xff\xff\xff\xff", 5),      // array of 4 G elements
      std::string("\xdf\xff\xff\xff\xff", 5),      // map
      std::string("\xdb\xff\xff\xff\xff", 5),      // string
      std::string("\xc6\xff\xff\xff\xff", 5),      // bytes
      std::string("\xc9\xff\xff\xff\xff\x01", 6),  // extension
  };
  for (const std::string& body : bodies) {
    Frame frame;
    frame.type = MessageType::kFailure;
    frame.body.assign(body.begin(), body.end());
    EXPECT_THROW(decodeMessage<Failure>(frame), ProtocolError);
  }
}

/// Decodes the frame as any receiver of control messages may.
void decodeAsEverything(const Frame& frame) {
  const auto tryAs = [&]<typename Message>(Message) {
    if (frame.type != Message::kType) return;
    try {
      decodeMessage<Message>(frame);
    } catch (const ProtocolError&) {
    }
  };
  tryAs(Hello{});
  tryAs(OpenPool{});
  tryAs(LoadPackage{});
  tryAs(ReportDeath{});
  tryAs(Welcome{});
  tryAs(Statistics{});
  tryAs(Failure{});
  tryAs(RequestOutputSegment{});
}

/// A stream of valid messages, damaged at random places.
std::string spoiltStream(std::mt19937_64& random) {
  std::string bytes;
  const auto messages = tests::pick(random, 1, 5);
  for (int i = 0; i < messages; ++i) {
    switch (tests::pick(random, 0, 4)) {
      case 0:
        bytes += bytesOf(Hello{1, 2, 3, 1, 0, {}});
        break;
      case 1:
        bytes += bytesOf(LoadPackage{1, 4096, std::string(random() % 300, 'n')});
        break;
      case 2:
        bytes += bytesOf(Welcome{1, 2, 3, "3.11", "2.13", true, false, 0, 0, {}});
        break;
      case 3:
        bytes += bytesOf(Statistics{1, 2, 3, 4, 5, {{1, 2, 3, 4, true, 5, 6}, {}}});
        break;
      default:
        bytes += bytesOf(RequestOutputSegment{1, uint64_t{1} << 50});
        break;
    }
  }
  const auto damages = tests::pick(random, 0, 4);
  for (int i = 0; i < damages && !bytes.empty(); ++i) {
    const auto at = tests::pick<size_t>(random, 0, bytes.size() - 1);
    switch (tests::pick(random, 0, 3)) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 2:
        bytes.erase(at, random() % 16);
        break;
      default:
        bytes.insert(at, random() % 16, static_cast<char>(random()));
        break;
    }
  }
  return bytes;
}

TEST(FrameFuzz, SpoiltStreamsAreDecodedOrRefusedAndLeakNothing) {
  auto random = tests::seededRandom();
  const size_t before = openDescriptors();
  size_t refused = 0;
  size_t frames = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto [ours, theirs] = ControlSocket::makePair();
    ControlSocket socket(std::move(ours));
    const std::string bytes = spoiltStream(random);
    try {
      for (size_t at = 0; at < bytes.size();) {
        const size_t part = tests::pick<size_t>(random, 1, bytes.size() - at);
        ASSERT_EQ(::send(theirs.get(), bytes.data() + at, part, 0), static_cast<ssize_t>(part));
        socket.receive();
        while (const auto frame = socket.next()) {
          ++frames;
          decodeAsEverything(*frame);
        }
        at += part;
      }
    } catch (const ProtocolError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(frames, 1000u);
  EXPECT_EQ(openDescriptors(), before);
}

}  // namespace
}  // namespace isopool::ipc
