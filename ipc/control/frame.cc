// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control/frame.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/standard_streams.h"
#include "base/system_call.h"

namespace isopool::ipc {

namespace {

struct FrameHeader {
  uint32_t magic;
  uint32_t type;
  uint32_t bodyBytes;
  uint32_t descriptors;
};

constexpr size_t kReadBytes = 64 * 1024;
// The kernel passes at most 253 descriptors with one message.
constexpr size_t kMaxReceivedDescriptors = 253;

// What one recvmsg() returns besides bytes. Allocates no memory: if an allocation failed, the
// descriptors that the kernel has passed already would stay open.
struct ReceivedMessage {
  std::array<base::Fd, kMaxReceivedDescriptors> descriptors;
  size_t count = 0;
  int flags = 0;

  // As recvmsg(2), but repeated after a signal.
  ssize_t receive(int socket, char* bytes, size_t most, int how) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxReceivedDescriptors * sizeof(int))> control{};
    iovec part{bytes, most};
    msghdr message{};
    ssize_t result;
    do {
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      result = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | how);
    } while (result < 0 && errno == EINTR);
    if (result < 0) return result;
    flags = message.msg_flags;
    for (cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr;
         rights = CMSG_NXTHDR(&message, rights)) {
      if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
      const size_t came = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < came && count < descriptors.size(); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof fd, sizeof fd);
        descriptors[count++] = base::Fd(fd);
      }
    }
    return result;
  }
};

}  // namespace

ControlSocket::ControlSocket(base::Fd socket)
    : socket_(base::awayFromStandardStreams(std::move(socket))) {
  const int flags = base::checkSystemCall(::fcntl(fd(), F_GETFL), "fcntl(F_GETFL)", fd());
  base::checkSystemCall(::fcntl(fd(), F_SETFL, flags | O_NONBLOCK), "fcntl(F_SETFL)", fd());
}

std::pair<base::Fd, base::Fd> ControlSocket::makePair() {
  int ends[2];
  base::checkSystemCall(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
  return {base::awayFromStandardStreams(base::Fd(ends[0])),
          base::awayFromStandardStreams(base::Fd(ends[1]))};
}

OutgoingFrame encodeFrame(MessageType type, const char* body, size_t bytes,
                          size_t descriptorCount) {
  if (bytes > kMaxBodyBytes || descriptorCount > kMaxFrameDescriptors) {
    throw ProtocolError("control message is too large to send");
  }
  OutgoingFrame frame;
  frame.bytes.resize(sizeof(FrameHeader) + bytes);
  const FrameHeader header{kFrameMagic, static_cast<uint32_t>(type), static_cast<uint32_t>(bytes),
                           static_cast<uint32_t>(descriptorCount)};
  std::memcpy(frame.bytes.data(), &header, sizeof header);
  if (bytes > 0) std::memcpy(frame.bytes.data() + sizeof header, body, bytes);
  return frame;
}

SendResult ControlSocket::trySend(OutgoingFrame& frame, const int* descriptors,
                                  size_t descriptorCount) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFrameDescriptors * sizeof(int))> control{};
  while (frame.sent < frame.bytes.size()) {
    iovec part{frame.bytes.data() + frame.sent, frame.bytes.size() - frame.sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!frame.begun() && descriptorCount > 0) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(descriptorCount * sizeof(int));
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(descriptorCount * sizeof(int));
      std::memcpy(CMSG_DATA(rights), descriptors, descriptorCount * sizeof(int));
    }
    // sendmsg() only if there are descriptors: workers send none, and a strict sandbox forbids them
    // this call.
    const ssize_t result = message.msg_controllen > 0
                               ? ::sendmsg(fd(), &message, MSG_NOSIGNAL)
                               : ::send(fd(), part.iov_base, part.iov_len, MSG_NOSIGNAL);
    if (result >= 0) {
      frame.sent += static_cast<size_t>(result);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == ETOOMANYREFS) return SendResult::kCrowded;
    if (errno == EAGAIN) return SendResult::kWouldBlock;
    return SendResult::kPeerGone;
  }
  return SendResult::kSent;
}

SendResult ControlSocket::sendFrame(MessageType type, const char* body, size_t bytes,
                                    const int* descriptors, size_t descriptorCount,
                                    std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto giveUpAt = Clock::now() + patience;
  OutgoingFrame frame = encodeFrame(type, body, bytes, descriptorCount);
  for (;;) {
    const SendResult result = trySend(frame, descriptors, descriptorCount);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(giveUpAt - Clock::now());
    const bool crowded = result == SendResult::kCrowded;
    if ((result != SendResult::kWouldBlock && !crowded) || left.count() <= 0) return result;
    pollfd writable{fd(), POLLOUT, 0};
    if (crowded) {
      ::poll(nullptr, 0, 1);
    } else {
      ::poll(&writable, 1, static_cast<int>(left.count()));
    }
  }
}

bool ControlSocket::descriptorsFit() const {
  // Duplicates one to test it: a free number does not mean that the numbers above it are free.
  const base::Fd oneMore(::fcntl(fd(), F_DUPFD_CLOEXEC, 0));
  ReceivedMessage next;
  // As many bytes as receive() reads: one read continues from messages without descriptors into the
  // first message that has some.
  std::array<char, kReadBytes> bytes;
  next.receive(fd(), bytes.data(), bytes.size(), MSG_PEEK);
  return (next.flags & MSG_CTRUNC) == 0;
}

ReceiveResult ControlSocket::receive() {
  const size_t had = bytes_.size();
  bytes_.resize(had + kReadBytes);
  ReceivedMessage message;
  const ssize_t result = message.receive(fd(), bytes_.data() + had, kReadBytes, 0);
  const int error = errno;
  bytes_.resize(had + static_cast<size_t>(result > 0 ? result : 0));
  if (result < 0) return error == EAGAIN ? ReceiveResult::kWouldBlock : ReceiveResult::kPeerGone;
  for (size_t i = 0; i < message.count; ++i) {
    descriptors_.push_back(base::awayFromStandardStreams(std::move(message.descriptors[i])));
  }
  if ((message.flags & MSG_CTRUNC) != 0) {
    throw ProtocolError("descriptors of a control message were lost: too many open files?");
  }
  if (result == 0) return ReceiveResult::kPeerGone;
  parse();
  return ReceiveResult::kOk;
}

void ControlSocket::parse() {
  size_t begin = 0;
  while (bytes_.size() - begin >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, bytes_.data() + begin, sizeof header);
    if (header.magic != kFrameMagic || header.bodyBytes > kMaxBodyBytes ||
        header.descriptors > kMaxFrameDescriptors) {
      throw ProtocolError("not an isopool control frame");
    }
    const size_t whole = sizeof header + header.bodyBytes;
    if (bytes_.size() - begin < whole) break;
    if (descriptors_.size() < header.descriptors) {
      throw ProtocolError("a control message came without its descriptors");
    }
    Frame frame;
    frame.type = static_cast<MessageType>(header.type);
    const char* body = bytes_.data() + begin + sizeof header;
    frame.body.assign(body, body + header.bodyBytes);
    for (uint32_t i = 0; i < header.descriptors; ++i) {
      frame.descriptors.push_back(std::move(descriptors_.front()));
      descriptors_.pop_front();
    }
    frames_.push_back(std::move(frame));
    begin += whole;
  }
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(begin));
  // Descriptors arrive with the first byte of their frame. Further ones would be taken for those of
  // a later frame, or accumulate until this process can't open any more.
  if (descriptors_.size() > (bytes_.empty() ? 0 : kMaxFrameDescriptors)) {
    throw ProtocolError("descriptors came without their control message");
  }
}

std::optional<Frame> ControlSocket::next() {
  if (frames_.empty()) return std::nullopt;
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

namespace detail {

msgpack::object_handle unpackBody(const Frame& frame) {
  try {
    size_t used = 0;
    const msgpack::unpack_limit limit(/*array=*/4096, /*map=*/256, /*str=*/kMaxBodyBytes,
                                      /*bin=*/kMaxBodyBytes, /*ext=*/0, /*depth=*/8);
    msgpack::object_handle body = base::askingNewHandler([&] {
      used = 0;
      return msgpack::unpack(frame.body.data(), frame.body.size(), used, nullptr, nullptr, limit);
    });
    if (used != frame.body.size())
      throw ProtocolError("a control message has bytes behind its end");
    return body;
  } catch (const msgpack::unpack_error& error) {
    throw ProtocolError(std::string("a control message is not msgpack: ") + error.what());
  }
}

}  // namespace detail

}  // namespace isopool::ipc
