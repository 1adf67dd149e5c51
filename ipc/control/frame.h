// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <msgpack.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/await_readable.h"
#include "base/fd.h"
#include "base/new_handler.h"
#include "ipc/control/message_type.h"

/// Frames of the control messages on a Unix stream socket: a fixed header, a msgpack body of
/// limited size and depth, and the frame's descriptors by SCM_RIGHTS.
namespace isopool::ipc {

inline constexpr uint32_t kFrameMagic = 0x314f5349;  // "ISO1"
inline constexpr uint32_t kMaxBodyBytes = 1u << 20;
inline constexpr uint32_t kMaxFrameDescriptors = 16;

/// A received frame. Owns the descriptors that came with it.
struct Frame {
  MessageType type{};
  std::vector<char> body;
  std::vector<base::Fd> descriptors;
};

/// The peer sent bytes that are not a frame or not the expected message, or its descriptors were
/// lost. The connection must be closed.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Decodes a frame's body. Throws ProtocolError if the frame has another type or its body is not an
/// array of Message's fields. Fields that are missing at the end keep their defaults, and further
/// fields are ignored, so that the Hello of another version can be read and refused.
template <typename Message>
Message decodeMessage(const Frame& frame);

/// kCrowded: the sockets of this user have more descriptors in transit than one process may open
/// (ETOOMANYREFS); the socket itself may be writable meanwhile. kPeerGone: the peer has closed the
/// connection, or its process is dead.
enum class SendResult { kSent, kWouldBlock, kCrowded, kPeerGone };
enum class ReceiveResult { kOk, kWouldBlock, kPeerGone };

/// A frame that is being sent, perhaps in several parts (ControlSocket::trySend).
struct OutgoingFrame {
  std::vector<char> bytes;
  size_t sent = 0;

  /// True once the first byte is sent, and the descriptors with it.
  bool begun() const { return sent > 0; }
};

/// Encodes a message as a frame's body.
template <typename Message>
msgpack::sbuffer encodeBody(const Message& message) {
  return base::askingNewHandler([&] {
    msgpack::sbuffer body;
    msgpack::pack(body, message);
    return body;
  });
}

/// Makes a frame of a body. Throws ProtocolError if the body is too long or there are too many
/// descriptors for a frame.
OutgoingFrame encodeFrame(MessageType type, const char* body, size_t bytes, size_t descriptorCount);
template <typename Message>
OutgoingFrame encodeMessage(const Message& message, size_t descriptorCount) {
  const msgpack::sbuffer body = encodeBody(message);
  return encodeFrame(Message::kType, body.data(), body.size(), descriptorCount);
}

/// One end of a control connection. Owns the socket, which is non-blocking; to block, call
/// waitReadable() and then receive(). Not thread-safe: one thread reads, and threads that write
/// must serialise their calls. If the peer dies, sending and receiving return kPeerGone.
class ControlSocket {
 public:
  ControlSocket() = default;
  /// Makes the socket non-blocking. Throws SystemCallError.
  explicit ControlSocket(base::Fd socket);

  /// A connected pair, both close-on-exec. Throws SystemCallError.
  static std::pair<base::Fd, base::Fd> makePair();

  int fd() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  void close() { socket_.close(); }
  /// Passes the socket to the caller. Only before the first receive().
  base::Fd release() { return std::move(socket_); }

  /// Sends a message with borrowed descriptors. Waits up to `patience` for room in the socket; a
  /// frame that is small against the socket's buffer does not wait in practice. After kWouldBlock
  /// and kCrowded the caller must close the connection: a part of the frame may have been sent.
  template <typename Message>
  SendResult send(const Message& message, std::initializer_list<int> descriptors = {},
                  std::chrono::milliseconds patience = std::chrono::milliseconds(1000)) {
    const msgpack::sbuffer body = encodeBody(message);
    return sendFrame(Message::kType, body.data(), body.size(), descriptors.begin(),
                     descriptors.size(), patience);
  }
  SendResult sendFrame(MessageType type, const char* body, size_t bytes, const int* descriptors,
                       size_t descriptorCount, std::chrono::milliseconds patience);

  /// Sends as much of the frame as the socket takes without waiting. After kWouldBlock call it
  /// again with the same frame, before any other frame, when the socket is writable; after
  /// kCrowded, a few milliseconds later. Pass the descriptors (as many as the frame was encoded
  /// for) until the frame has begun().
  SendResult trySend(OutgoingFrame& frame, const int* descriptors, size_t descriptorCount);

  /// False if this process may not open enough files for the next descriptors and one more, which
  /// is needed to examine them: receive() would lose those that do not fit. Receives nothing.
  bool descriptorsFit() const;
  /// Reads what the socket has, without waiting; next() then returns the complete frames. Throws
  /// ProtocolError if the bytes are not frames or if descriptors were lost.
  ReceiveResult receive();
  /// The next complete frame in the order of arrival; nullopt if there is none.
  std::optional<Frame> next();

  /// As awaitReadable().
  bool waitReadable(std::chrono::milliseconds timeout) const {
    return base::awaitReadable(socket_.get(), timeout);
  }

 private:
  void parse();

  base::Fd socket_;
  std::vector<char> bytes_;
  std::deque<base::Fd> descriptors_;
  std::deque<Frame> frames_;
};

namespace detail {
msgpack::object_handle unpackBody(const Frame& frame);
}

template <typename Message>
Message decodeMessage(const Frame& frame) {
  if (frame.type != Message::kType) {
    throw ProtocolError("control message of type " +
                        std::to_string(static_cast<uint32_t>(frame.type)) + " where type " +
                        std::to_string(static_cast<uint32_t>(Message::kType)) + " was expected");
  }
  try {
    const msgpack::object_handle body = detail::unpackBody(frame);
    return body.get().as<Message>();
  } catch (const msgpack::type_error&) {
    throw ProtocolError("control message of type " +
                        std::to_string(static_cast<uint32_t>(frame.type)) + " has wrong fields");
  }
}

}  // namespace isopool::ipc
