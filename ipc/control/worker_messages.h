// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <vector>

#include "ipc/control/message_type.h"

/// The messages between a supervisor and its workers. After each message to a worker the supervisor
/// rings its doorbell. What holds for every message: ipc/control/message_type.h.
namespace isopool::ipc {

// ---- supervisor -> worker -------------------------------------------------------------------

/// Serve a client. Descriptors: the client's control segment (the client has sealed it
/// kSingleWriter), the worker's control segment, the first output segment (number 1).
struct AttachChannel {
  static constexpr MessageType kType = MessageType::kAttachChannel;
  uint64_t epoch = 0;
  uint64_t client = 0;  ///< the supervisor's number of the client
  uint64_t outputBytes = 0;
  uint32_t share = 1;       ///< calls per call of a client with share 1, if both wait
  uint32_t leaseLimit = 0;  ///< results that it may hold; further ones are refused. 0: no limit
  /// Private memory that its handles may keep; handles beyond it are refused. 0: no limit
  uint64_t memoryLimit = 0;
  MSGPACK_DEFINE_ARRAY(epoch, client, outputBytes, share, leaseLimit, memoryLimit)
};

/// Detach the client when no call of it runs. The worker answers with kChannelDetached.
struct DetachChannel {
  static constexpr MessageType kType = MessageType::kDetachChannel;
  uint64_t client = 0;
  MSGPACK_DEFINE_ARRAY(client)
};

/// Map a segment of the client's input arena. Descriptors: the segment.
struct MapInputSegment {
  static constexpr MessageType kType = MessageType::kMapInputSegment;
  uint64_t client = 0;
  uint32_t segment = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(client, segment, bytes)
};

/// Map a package of the client, see LoadPackage. Descriptors: the package.
struct MapPackage {
  static constexpr MessageType kType = MessageType::kMapPackage;
  uint64_t client = 0;
  uint32_t package = 0;
  uint64_t bytes = 0;
  std::string name;
  bool shared = false;
  MSGPACK_DEFINE_ARRAY(client, package, bytes, name, shared)
};

/// The client has unloaded these packages: unmap them.
struct UnmapPackage {
  static constexpr MessageType kType = MessageType::kUnmapPackage;
  uint64_t client = 0;
  std::vector<uint32_t> packages;  ///< kMapPackage may not have been sent for some of them
  MSGPACK_DEFINE_ARRAY(client, packages)
};

/// Use a further segment for the results of the client. Descriptors: the segment.
struct AddOutputSegment {
  static constexpr MessageType kType = MessageType::kAddOutputSegment;
  uint64_t client = 0;
  uint32_t segment = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(client, segment, bytes)
};

/// Answers kRequestOutputSegment: the supervisor grants no segment.
struct RefuseOutputSegment {
  static constexpr MessageType kType = MessageType::kRefuseOutputSegment;
  uint64_t client = 0;
  std::string text;          ///< names the limit and its setting
  bool clientLimit = false;  ///< the limit is the client's; otherwise the worker's
  /// No limit was met: the system refuses the memory, for example for lack of descriptors.
  bool ofSystem = false;
  uint32_t patience = 0;  ///< ms for which a call may wait until results come back
  MSGPACK_DEFINE_ARRAY(client, text, clientLimit, ofSystem, patience)
};

/// The client may not have this segment of its input arena: the worker refuses calls that lie in it
/// with `text`, which names the limit.
struct RefuseInputSegment {
  static constexpr MessageType kType = MessageType::kRefuseInputSegment;
  uint64_t client = 0;
  uint32_t segment = 0;
  std::string text;
  MSGPACK_DEFINE_ARRAY(client, segment, text)
};

/// The client has removed a segment of its input arena: unmap it between two calls, then answer
/// with kInputSegmentUnmapped. kMapInputSegment may have been refused.
struct UnmapInputSegment {
  static constexpr MessageType kType = MessageType::kUnmapInputSegment;
  uint64_t client = 0;
  uint32_t segment = 0;
  MSGPACK_DEFINE_ARRAY(client, segment)
};

/// Return the free memory for the client's results to the system now.
struct TrimOutput {
  static constexpr MessageType kType = MessageType::kTrimOutput;
  uint64_t client = 0;
  MSGPACK_DEFINE_ARRAY(client)
};

/// What the worker is from now on, for people who look at the system's processes: "spare", "worker
/// 3 of pool 1".
struct SetTitle {
  static constexpr MessageType kType = MessageType::kSetTitle;
  std::string role;
  MSGPACK_DEFINE_ARRAY(role)
};

// ---- worker -> supervisor -------------------------------------------------------------------

/// The worker's first message: it waits for channels.
struct WorkerReady {
  static constexpr MessageType kType = MessageType::kWorkerReady;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(epoch)
};

/// Answers kAttachChannel: the worker serves the client.
struct ChannelAttached {
  static constexpr MessageType kType = MessageType::kChannelAttached;
  uint64_t client = 0;
  MSGPACK_DEFINE_ARRAY(client)
};

/// Requests room for `bytes` more in the output arena of a client's channel. The worker does not
/// wait for the answer.
struct RequestOutputSegment {
  static constexpr MessageType kType = MessageType::kRequestOutputSegment;
  uint64_t client = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(client, bytes)
};

/// The worker has unmapped all memory of the client.
struct ChannelDetached {
  static constexpr MessageType kType = MessageType::kChannelDetached;
  uint64_t client = 0;
  MSGPACK_DEFINE_ARRAY(client)
};

/// Answers kUnmapInputSegment: the worker has unmapped and closed the segment.
struct InputSegmentUnmapped {
  static constexpr MessageType kType = MessageType::kInputSegmentUnmapped;
  uint64_t client = 0;
  uint32_t segment = 0;
  MSGPACK_DEFINE_ARRAY(client, segment)
};

/// The worker has removed a segment of the output arena of a client's channel: it has got back all
/// that it had lent of it, does not map it, and has returned its pages to the system. Not the first
/// segment (number 1). The supervisor makes the client unmap it, and counts it until no process can
/// write to it any more.
struct RetireOutputSegment {
  static constexpr MessageType kType = MessageType::kRetireOutputSegment;
  uint64_t client = 0;
  uint32_t segment = 0;
  MSGPACK_DEFINE_ARRAY(client, segment)
};

/// ForbiddenAct::act of a call that failed because it needed more memory than the worker may have.
inline constexpr const char* kTooMuchMemory = "memory beyond ISOPOOL_WORKER_MEMORY";

/// User code tried something that the sandbox forbids, `times` since the last such message.
struct ForbiddenAct {
  static constexpr MessageType kType = MessageType::kForbiddenAct;
  std::string act;  ///< "system call ptrace", "file /etc/shadow"
  uint64_t times = 0;
  MSGPACK_DEFINE_ARRAY(act, times)
};

/// What is left of the code of clients a second after these have left: so many threads that run
/// Python code, and whether there are hooks that run in the code of others. The supervisor replaces
/// the worker as one whose life is over.
struct CodeLeft {
  static constexpr MessageType kType = MessageType::kCodeLeft;
  uint64_t threads = 0;
  bool hooks = false;
  MSGPACK_DEFINE_ARRAY(threads, hooks)
};

}  // namespace isopool::ipc
