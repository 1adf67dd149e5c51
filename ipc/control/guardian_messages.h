// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>

#include "ipc/control/message_type.h"

/// The messages between a shared supervisor and its guardian, which may have several supervisors:
/// one that serves, its successor that starts, and predecessors that end. What holds for every
/// message: ipc/control/message_type.h.
namespace isopool::ipc {

// ---- supervisor -> guardian -----------------------------------------------------------------

/// Starts another supervisor, from the program file, the arguments and the environment of this one.
/// Descriptors: standard input, output and error stream; the listening socket; and its lock, unless
/// the service manager opened the socket.
struct StartSuccessor {
  static constexpr MessageType kType = MessageType::kStartSuccessor;
  uint64_t startMilliseconds = 0;     ///< the successor is killed if it does not serve by then
  uint64_t drainMilliseconds = 0;     ///< this supervisor is killed so long after kSuccessorServes
  uint64_t watchdogMicroseconds = 0;  ///< WATCHDOG_USEC of the service manager; 0: none
  MSGPACK_DEFINE_ARRAY(startMilliseconds, drainMilliseconds, watchdogMicroseconds)
};

/// The first message of a successor: it accepts connections. The guardian passes on only its
/// notifications from here on, and sends kSuccessorServes to its predecessor.
struct Serves {
  static constexpr MessageType kType = MessageType::kServes;
  uint32_t unused = 0;  ///< always 0
  MSGPACK_DEFINE_ARRAY(unused)
};

// A successor that ends before it serves sends kFailure (client_messages.h) with the reason.

// ---- guardian -> supervisor -----------------------------------------------------------------

/// The successor serves the address: this supervisor drains and ends.
struct SuccessorServes {
  static constexpr MessageType kType = MessageType::kSuccessorServes;
  uint32_t unused = 0;  ///< always 0
  MSGPACK_DEFINE_ARRAY(unused)
};

/// The successor ended before it served: this supervisor goes on.
struct SuccessorEnded {
  static constexpr MessageType kType = MessageType::kSuccessorEnded;
  std::string text;  ///< how it ended, and why if it has sent kFailure
  MSGPACK_DEFINE_ARRAY(text)
};

}  // namespace isopool::ipc
