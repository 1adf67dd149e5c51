// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <vector>

#include "ipc/ids.h"

/// The control plane's messages: rare events between client, supervisor, zygote and worker. Each
/// travels as one msgpack array in one frame (ipc/control/frame.h), with the descriptors that its
/// comment lists, in that order. A field may be added at an array's end only together with a new
/// kProtocolVersion.
namespace isopool::ipc {

inline constexpr uint32_t kProtocolVersion = 1;

enum class MessageType : uint32_t {
  // client -> supervisor
  kHello = 1,
  kOpenPool,
  kClosePool,
  kDeclareInputSegment,
  kLoadPackage,
  kUnloadPackage,
  kChannelMapped,
  kReportDeath,
  kRequestStatistics,
  // supervisor -> client
  kWelcome = 100,
  kIntroduceWorker,
  kAssignWorker,
  kWorkerDied,
  kSlotQuarantined,
  kGrantOutputSegment,
  kFailure,
  kStatistics,
  // supervisor -> zygote
  kForkWorker = 200,
  // zygote -> supervisor
  kZygoteReady = 300,
  kZygoteFailed,
  kWorkerForked,
  kForkFailed,
  // supervisor -> worker
  kAttachChannel = 400,
  kDetachChannel,
  kMapInputSegment,
  kMapPackage,
  kUnmapPackage,
  kAddOutputSegment,
  kRefuseOutputSegment,
  // worker -> supervisor
  kWorkerReady = 500,
  kChannelAttached,
  kRequestOutputSegment,
};

// ---- client -> supervisor -------------------------------------------------------------------

/// First message of a client. Descriptors: the client's pidfd.
struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  uint32_t protocolVersion = kProtocolVersion;
  uint32_t layoutVersion = 0;
  int32_t processId = 0;
  MSGPACK_DEFINE_ARRAY(protocolVersion, layoutVersion, processId)
};

/// Wants `workers` workers in slots 0..workers-1 of a new pool. Answered by kAssignWorker per slot.
struct OpenPool {
  static constexpr MessageType kType = MessageType::kOpenPool;
  uint32_t pool = 0;
  uint32_t workers = 0;
  MSGPACK_DEFINE_ARRAY(pool, workers)
};

/// The pool's workers are killed and its slots forgotten.
struct ClosePool {
  static constexpr MessageType kType = MessageType::kClosePool;
  uint32_t pool = 0;
  MSGPACK_DEFINE_ARRAY(pool)
};

/// A segment of the client's input arena, for every worker that the client may call, now and later.
/// Descriptors: the segment (sealed kFixedSize).
struct DeclareInputSegment {
  static constexpr MessageType kType = MessageType::kDeclareInputSegment;
  uint32_t segment = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(segment, bytes)
};

/// A package for every worker of this client, now and later. No answer: a call that names the
/// package makes a worker read its socket first. Descriptors: the package. An archive is sealed
/// kReadOnly and mapped copy-on-write; the memory of a moved object is `shared`: sealed kFixedSize,
/// and what one worker writes to it all see.
struct LoadPackage {
  static constexpr MessageType kType = MessageType::kLoadPackage;
  uint32_t package = 0;
  uint64_t bytes = 0;
  std::string name;  ///< as the user named it, for messages
  bool shared = false;
  MSGPACK_DEFINE_ARRAY(package, bytes, name, shared)
};

struct UnloadPackage {
  static constexpr MessageType kType = MessageType::kUnloadPackage;
  uint32_t package = 0;
  MSGPACK_DEFINE_ARRAY(package)
};

/// The client has mapped and sealed its control segment of the channel to `epoch`.
struct ChannelMapped {
  static constexpr MessageType kType = MessageType::kChannelMapped;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(epoch)
};

/// The client saw the life word of `epoch` orphaned, its ring poisoned, or killed it for a deadline.
/// The supervisor kills it (again) and replaces it without waiting for its pidfd.
struct ReportDeath {
  static constexpr MessageType kType = MessageType::kReportDeath;
  uint64_t epoch = 0;
  std::string reason;
  MSGPACK_DEFINE_ARRAY(epoch, reason)
};

struct RequestStatistics {
  static constexpr MessageType kType = MessageType::kRequestStatistics;
  uint64_t token = 0;
  MSGPACK_DEFINE_ARRAY(token)
};

// ---- supervisor -> client -------------------------------------------------------------------

/// Answers kHello once the zygote can fork. Descriptors: the supervisor's pidfd.
struct Welcome {
  static constexpr MessageType kType = MessageType::kWelcome;
  uint32_t protocolVersion = kProtocolVersion;
  int32_t processId = 0;
  int32_t zygoteProcessId = 0;
  std::string pythonVersion;  ///< "3.11.2", of the workers
  std::string torchVersion;   ///< "2.13.0+cpu"
  bool lifeWordWorks = true;  ///< false: deaths are seen through pidfds alone on this system
  MSGPACK_DEFINE_ARRAY(protocolVersion, processId, zygoteProcessId, pythonVersion, torchVersion,
                       lifeWordWorks)
};

/// A new worker process, for a slot or as the spare. The client maps the channel and answers
/// kChannelMapped; the worker then attaches (WorkerControl::attached). Descriptors: the worker's
/// pidfd, client control, worker control, the first output segment (number 1), the last words (a
/// memory object that ends with what the worker last wrote to its error stream; read-only use).
struct IntroduceWorker {
  static constexpr MessageType kType = MessageType::kIntroduceWorker;
  uint64_t epoch = 0;
  int32_t processId = 0;
  uint64_t outputBytes = 0;
  bool spare = false;
  MSGPACK_DEFINE_ARRAY(epoch, processId, outputBytes, spare)
};

/// From now on the slot is served by `epoch`, which was introduced before.
struct AssignWorker {
  static constexpr MessageType kType = MessageType::kAssignWorker;
  uint32_t pool = 0;
  uint32_t slot = 0;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(pool, slot, epoch)
};

/// The supervisor reaped `epoch`: nobody of it can write any memory any more.
struct WorkerDied {
  static constexpr MessageType kType = MessageType::kWorkerDied;
  uint64_t epoch = 0;
  int32_t signal = 0;  ///< 0 if it exited by itself
  int32_t exitCode = 0;
  MSGPACK_DEFINE_ARRAY(epoch, signal, exitCode)
};

/// A slot's workers keep dying before they complete a call: it stays empty for a while.
struct SlotQuarantined {
  static constexpr MessageType kType = MessageType::kSlotQuarantined;
  uint32_t pool = 0;
  uint32_t slot = 0;
  uint32_t deaths = 0;
  uint32_t retryAfterMilliseconds = 0;
  std::string text;  ///< one line for people
  MSGPACK_DEFINE_ARRAY(pool, slot, deaths, retryAfterMilliseconds, text)
};

/// A further segment of the worker's output arena. The client is told before the worker.
/// Descriptors: the segment.
struct GrantOutputSegment {
  static constexpr MessageType kType = MessageType::kGrantOutputSegment;
  uint64_t epoch = 0;
  uint32_t segment = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(epoch, segment, bytes)
};

/// The supervisor can't serve this client at all (versions, zygote can't start). It closes after it.
struct Failure {
  static constexpr MessageType kType = MessageType::kFailure;
  std::string text;
  MSGPACK_DEFINE_ARRAY(text)
};

struct WorkerStatistics {
  uint64_t epoch = 0;
  int32_t processId = 0;
  uint32_t pool = 0;
  uint32_t slot = 0;
  bool spare = false;
  uint64_t completedCalls = 0;
  uint64_t outputBytes = 0;
  MSGPACK_DEFINE_ARRAY(epoch, processId, pool, slot, spare, completedCalls, outputBytes)
};

struct Statistics {
  static constexpr MessageType kType = MessageType::kStatistics;
  uint64_t token = 0;
  uint64_t restarts = 0;
  uint64_t zygoteRestarts = 0;
  uint64_t sharedBytes = 0;  ///< of all memory objects that the supervisor made or adopted
  int32_t zygoteProcessId = 0;
  std::vector<WorkerStatistics> workers;
  MSGPACK_DEFINE_ARRAY(token, restarts, zygoteRestarts, sharedBytes, zygoteProcessId, workers)
};

// ---- supervisor <-> zygote ------------------------------------------------------------------

/// Descriptors: the worker's end of its control socket, the read end of its lifeline, its bell (a
/// memory object of one page, read-only for it), its last words.
struct ForkWorker {
  static constexpr MessageType kType = MessageType::kForkWorker;
  uint64_t epoch = 0;
  uint64_t seed = 0;  ///< of torch's and numpy's generators
  MSGPACK_DEFINE_ARRAY(epoch, seed)
};

struct ZygoteReady {
  static constexpr MessageType kType = MessageType::kZygoteReady;
  std::string pythonVersion;
  std::string torchVersion;
  bool lifeWordWorks = true;
  MSGPACK_DEFINE_ARRAY(pythonVersion, torchVersion, lifeWordWorks)
};

/// The zygote can't serve (import failed, more than one thread). It exits after it.
struct ZygoteFailed {
  static constexpr MessageType kType = MessageType::kZygoteFailed;
  std::string text;
  MSGPACK_DEFINE_ARRAY(text)
};

/// The worker runs and is, by its parent's exit, a child of the supervisor.
struct WorkerForked {
  static constexpr MessageType kType = MessageType::kWorkerForked;
  uint64_t epoch = 0;
  int32_t processId = 0;
  MSGPACK_DEFINE_ARRAY(epoch, processId)
};

struct ForkFailed {
  static constexpr MessageType kType = MessageType::kForkFailed;
  uint64_t epoch = 0;
  std::string text;
  MSGPACK_DEFINE_ARRAY(epoch, text)
};

// ---- supervisor <-> worker ------------------------------------------------------------------
// After each message to a worker the supervisor rings its bell.

/// Serve a client. Descriptors: client control (sealed kSingleWriter by then), worker control, the
/// first output segment (number 1).
struct AttachChannel {
  static constexpr MessageType kType = MessageType::kAttachChannel;
  uint64_t epoch = 0;
  uint64_t client = 0;  ///< the supervisor's number of the client
  uint64_t outputBytes = 0;
  MSGPACK_DEFINE_ARRAY(epoch, client, outputBytes)
};

struct DetachChannel {
  static constexpr MessageType kType = MessageType::kDetachChannel;
  uint64_t client = 0;
  MSGPACK_DEFINE_ARRAY(client)
};

/// Descriptors: the segment.
struct MapInputSegment {
  static constexpr MessageType kType = MessageType::kMapInputSegment;
  uint64_t client = 0;
  uint32_t segment = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(client, segment, bytes)
};

/// Descriptors: the package.
struct MapPackage {
  static constexpr MessageType kType = MessageType::kMapPackage;
  uint64_t client = 0;
  uint32_t package = 0;
  uint64_t bytes = 0;
  std::string name;
  bool shared = false;
  MSGPACK_DEFINE_ARRAY(client, package, bytes, name, shared)
};

struct UnmapPackage {
  static constexpr MessageType kType = MessageType::kUnmapPackage;
  uint64_t client = 0;
  uint32_t package = 0;
  MSGPACK_DEFINE_ARRAY(client, package)
};

/// Descriptors: the segment.
struct AddOutputSegment {
  static constexpr MessageType kType = MessageType::kAddOutputSegment;
  uint64_t client = 0;
  uint32_t segment = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(client, segment, bytes)
};

struct RefuseOutputSegment {
  static constexpr MessageType kType = MessageType::kRefuseOutputSegment;
  uint64_t client = 0;
  std::string text;  ///< names the limit and the knob
  MSGPACK_DEFINE_ARRAY(client, text)
};

/// The worker's first message: it waits for channels.
struct WorkerReady {
  static constexpr MessageType kType = MessageType::kWorkerReady;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(epoch)
};

struct ChannelAttached {
  static constexpr MessageType kType = MessageType::kChannelAttached;
  uint64_t client = 0;
  MSGPACK_DEFINE_ARRAY(client)
};

/// Wants room for `bytes` more in the output arena of a client's channel; the worker does not wait.
struct RequestOutputSegment {
  static constexpr MessageType kType = MessageType::kRequestOutputSegment;
  uint64_t client = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(client, bytes)
};

}  // namespace isopool::ipc
