// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/await_readable.h"
#include "base/fd.h"
#include "base/new_handler.h"
#include "ipc/control/messages.h"

/// Framing of the control plane on a Unix stream socket: a fixed header, a msgpack body of limited
/// size and depth, and the frame's descriptors by SCM_RIGHTS.
namespace isopool::ipc {

inline constexpr uint32_t kFrameMagic = 0x314f5349;  // "ISO1"
inline constexpr uint32_t kMaxBodyBytes = 1u << 20;
inline constexpr uint32_t kMaxFrameDescriptors = 16;

struct Frame {
  MessageType type{};
  std::vector<char> body;
  std::vector<base::Fd> descriptors;
};

/// The peer sent something that is no frame or no such message. The connection is to be closed.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Decodes a frame's body. Throws ProtocolError if it is no array of a Message's fields. Fields
/// that are missing at its end keep their defaults and further ones are ignored, so that the Hello
/// of another version can be read and refused by its number.
template <typename Message>
Message decodeMessage(const Frame& frame);

/// kCrowded: more descriptors of this user than one process may open are on their way through all
/// of its sockets (ETOOMANYREFS); the socket itself may be writable meanwhile.
enum class SendResult { kSent, kWouldBlock, kCrowded, kPeerGone };
enum class ReceiveResult { kOk, kWouldBlock, kPeerGone };

/// A frame on its way that may leave in several parts (ControlSocket::trySend).
struct OutgoingFrame {
  std::vector<char> bytes;
  size_t sent = 0;

  /// True once the first byte has gone, and the descriptors with it.
  bool begun() const { return sent > 0; }
};

/// A message as a frame's body.
template <typename Message>
msgpack::sbuffer encodeBody(const Message& message) {
  return base::askingNewHandler([&] {
    msgpack::sbuffer body;
    msgpack::pack(body, message);
    return body;
  });
}

/// Throws ProtocolError if the message is larger than a frame may be.
OutgoingFrame encodeFrame(MessageType type, const char* body, size_t bytes, size_t descriptorCount);
template <typename Message>
OutgoingFrame encodeMessage(const Message& message, size_t descriptorCount) {
  const msgpack::sbuffer body = encodeBody(message);
  return encodeFrame(Message::kType, body.data(), body.size(), descriptorCount);
}

/// One end of a control connection. Owns the socket, which is non-blocking; blocking use is
/// waitReadable() and then receive(). Not thread-safe: one thread reads, writers serialise
/// themselves.
class ControlSocket {
 public:
  ControlSocket() = default;
  explicit ControlSocket(base::Fd socket);

  /// A connected pair, both close-on-exec.
  static std::pair<base::Fd, base::Fd> makePair();

  int fd() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  void close() { socket_.close(); }
  /// Gives the socket away. Only before anything was received.
  base::Fd release() { return std::move(socket_); }

  /// Sends a message with borrowed descriptors, waiting up to `patience` for room in the socket.
  /// A frame is sent whole or (kWouldBlock, kCrowded) not at all, as long as the caller then gives
  /// up the connection; frames that are small against the socket's buffer never wait in practice.
  template <typename Message>
  SendResult send(const Message& message, std::initializer_list<int> descriptors = {},
                  std::chrono::milliseconds patience = std::chrono::milliseconds(1000)) {
    const msgpack::sbuffer body = encodeBody(message);
    return sendFrame(Message::kType, body.data(), body.size(), descriptors.begin(),
                     descriptors.size(), patience);
  }
  SendResult sendFrame(MessageType type, const char* body, size_t bytes, const int* descriptors,
                       size_t descriptorCount, std::chrono::milliseconds patience);

  /// Sends as much of the frame as the socket takes without waiting. kWouldBlock: to be called
  /// again with the same frame, before any other, once the socket is writable; kCrowded: in a
  /// moment. The descriptors (as many as the frame was encoded for) are looked at until the frame
  /// has begun().
  SendResult trySend(OutgoingFrame& frame, const int* descriptors, size_t descriptorCount);

  /// False if the next descriptors and one more, with which they can be looked at, would find no
  /// room among this process's open files: receive() would lose what finds none. Nothing is taken.
  bool descriptorsFit() const;
  /// Reads what is there without waiting; complete frames are then given by next(). Throws
  /// ProtocolError on garbage.
  ReceiveResult receive();
  /// The next complete frame, in order.
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
