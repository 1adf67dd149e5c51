// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <vector>

#include "ipc/control/message_type.h"
#include "ipc/control/model_calls.h"

/// The messages between a supervisor and its clients. The connection of an operator also begins
/// with Hello and may end with Failure. What holds for every message: ipc/control/message_type.h.
namespace isopool::ipc {

// ---- client -> supervisor -------------------------------------------------------------------

/// What a connection is for.
enum class ClientRole : uint32_t {
  kProgram = 0,   ///< opens pools and calls workers
  kOperator = 1,  ///< only requests reports
};

/// First message of a client. Descriptors: the client's pidfd.
struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  uint32_t protocolVersion = kProtocolVersion;
  uint32_t layoutVersion = 0;  ///< kLayoutVersion of a program, which maps rings; an operator has 0
  int32_t processId = 0;       ///< in the client's PID namespace: for messages only
  uint32_t oldestProtocolVersion = kOldestProtocolVersion;
  uint32_t role = 0;    ///< ClientRole
  std::string program;  ///< the program's name, for reports and to find its class, see docs
  MSGPACK_DEFINE_ARRAY(protocolVersion, layoutVersion, processId, oldestProtocolVersion, role,
                       program)
};

/// Requests `workers` workers in slots 0..workers-1 of a new pool. The supervisor answers with one
/// kAssignWorker per slot. In a shared supervisor a connection has one pool, and its slots share
/// the existing workers. Zero or too many workers, and a pool that is open, end the connection.
struct OpenPool {
  static constexpr MessageType kType = MessageType::kOpenPool;
  uint32_t pool = 0;  ///< the client's number of it, never used again on this connection
  uint32_t workers = 0;
  MSGPACK_DEFINE_ARRAY(pool, workers)
};

/// The supervisor removes the pool's slots and kills its workers. Shared workers are not killed:
/// the client is detached from them.
struct ClosePool {
  static constexpr MessageType kType = MessageType::kClosePool;
  uint32_t pool = 0;
  MSGPACK_DEFINE_ARRAY(pool)
};

/// A segment of the client's input arena, for every worker that the client may call, now and later.
/// Descriptors: the segment (sealed kFixedSize).
struct DeclareInputSegment {
  static constexpr MessageType kType = MessageType::kDeclareInputSegment;
  uint32_t segment = 0;  ///< the client's number of it, from 1
  uint64_t bytes = 0;    ///< the supervisor checks that the object has this size
  MSGPACK_DEFINE_ARRAY(segment, bytes)
};

/// The client has removed a segment of its input arena: it refers to no block of it, does not map
/// it, and has returned its pages to the system. The supervisor makes the workers unmap it and
/// answers with kInputSegmentReleased. Since protocol version 5.
struct RetireInputSegment {
  static constexpr MessageType kType = MessageType::kRetireInputSegment;
  uint32_t segment = 0;
  MSGPACK_DEFINE_ARRAY(segment)
};

/// Answers kUnmapOutputSegment.
struct OutputSegmentUnmapped {
  static constexpr MessageType kType = MessageType::kOutputSegmentUnmapped;
  uint64_t epoch = 0;
  uint32_t segment = 0;
  MSGPACK_DEFINE_ARRAY(epoch, segment)
};

/// Makes the client's workers return their free memory for its results to the system now. Since
/// protocol version 5.
struct TrimMemory {
  static constexpr MessageType kType = MessageType::kTrimMemory;
  uint32_t unused = 0;  ///< always 0
  MSGPACK_DEFINE_ARRAY(unused)
};

/// A package for every worker of this client, now and later. The client need not wait before it
/// uses the package: a worker that gets a call with it reads its control socket first. Only a
/// shared supervisor answers, with kPackageHeld for an archive. Descriptors: the package. An
/// archive is sealed kReadOnly and mapped copy-on-write. The memory of a moved object is `shared`:
/// sealed kFixedSize, and all workers see what one of them writes to it.
struct LoadPackage {
  static constexpr MessageType kType = MessageType::kLoadPackage;
  uint32_t package = 0;  ///< the client's number of it
  uint64_t bytes = 0;
  std::string name;  ///< the user's name of the package, for messages
  bool shared = false;
  uint64_t digestLow = 0;  ///< XXH3-128 of an archive's bytes: a hint that two are equal
  uint64_t digestHigh = 0;
  MSGPACK_DEFINE_ARRAY(package, bytes, name, shared, digestLow, digestHigh)
};

/// The client has compared its package with the one that kPackageHeld offered. If they are the
/// `same`, both sides use the offered package and release the client's own.
struct ConfirmPackage {
  static constexpr MessageType kType = MessageType::kConfirmPackage;
  uint32_t package = 0;
  bool same = false;
  MSGPACK_DEFINE_ARRAY(package, same)
};

/// The client does not use the package any more: its workers unmap it.
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

/// The client found that the owner of the worker's liveness word died or that the worker's ring is
/// poisoned, or it is about to kill the worker. `reason`: why it kills the worker; empty if it does
/// not. `overdue`: because the call that the worker runs was cancelled or is past its deadline.
/// The supervisor of a private pool kills the worker (again) and replaces it without waiting for
/// its pidfd. A shared supervisor treats the message as a hint: unless it finds the worker dead or
/// stuck, it closes the client's channel (ChannelClosed) and introduces another one.
struct ReportDeath {
  static constexpr MessageType kType = MessageType::kReportDeath;
  uint64_t epoch = 0;
  std::string reason;
  bool overdue = false;
  MSGPACK_DEFINE_ARRAY(epoch, reason, overdue)
};

/// A call of the client runs past its deadline in a shared worker. The supervisor kills the worker
/// after the grace period unless the call has ended by then. `sequence`: the number of the call on
/// the channel.
struct ReportOverdue {
  static constexpr MessageType kType = MessageType::kReportOverdue;
  uint64_t epoch = 0;
  uint64_t sequence = 0;
  MSGPACK_DEFINE_ARRAY(epoch, sequence)
};

/// The client does not use the retiring worker any more (kRetireWorker).
struct WorkerReleased {
  static constexpr MessageType kType = MessageType::kWorkerReleased;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(epoch)
};

/// Answers kDrain: from now on the client publishes no call. It waits for its calls in flight.
struct AcknowledgeDrain {
  static constexpr MessageType kType = MessageType::kAcknowledgeDrain;
  uint32_t unused = 0;  ///< always 0
  MSGPACK_DEFINE_ARRAY(unused)
};

/// Calls of the client since its last such message, and those that wait now, for the operator. Only
/// to a shared supervisor, since protocol version 4. A client that has made calls, or whose calls
/// wait or waited, sends it every two seconds, and when it closes its pool; a client that is killed
/// leaves its last calls unreported.
struct ReportCalls {
  static constexpr MessageType kType = MessageType::kReportCalls;
  std::vector<ModelCalls> models;
  uint32_t waiting = 0;  ///< calls that no worker has: none has a place, or the program is paused
  /// Calls that workers have, in their rings or running. A ring also has what no thread waits for.
  uint32_t awaited = 0;
  MSGPACK_DEFINE_ARRAY(models, waiting, awaited)
};

/// The supervisor answers with kStatistics and the same token.
struct RequestStatistics {
  static constexpr MessageType kType = MessageType::kRequestStatistics;
  uint64_t token = 0;  ///< chosen by the client; the supervisor does not interpret it
  MSGPACK_DEFINE_ARRAY(token)
};

// ---- supervisor -> client -------------------------------------------------------------------

/// A setting of the supervisor and where its value comes from, as `isopoold --show-settings` prints
/// it.
struct SettingInForce {
  std::string key;     ///< "spares"
  std::string value;   ///< "2"
  std::string source;  ///< "environment ISOPOOL_SPARES"
  MSGPACK_DEFINE_ARRAY(key, value, source)
};

/// Answers kHello once the zygote can fork. Descriptors: the supervisor's pidfd.
struct Welcome {
  static constexpr MessageType kType = MessageType::kWelcome;
  uint32_t protocolVersion = kProtocolVersion;  ///< the one that both sides use
  int32_t processId = 0;                        ///< in the supervisor's PID namespace
  int32_t zygoteProcessId = 0;
  std::string pythonVersion;      ///< "3.11.2", of the workers
  std::string torchVersion;       ///< "2.13.0+cpu"
  bool livenessWordWorks = true;  ///< false: on this system only pidfds show a worker's death
  bool shared = false;            ///< several programs use the supervisor and its workers
  uint32_t callLimit = 0;         ///< calls that the client may have in flight; 0: no limit
  uint64_t client = 0;  ///< the supervisor's number of the client, as in workers' status pages
  std::vector<SettingInForce> settings;  ///< of this kind of supervisor; since version 4
  uint64_t memoryLimit = 0;  ///< bytes that the client may hold; 0: no limit; since version 5
  MSGPACK_DEFINE_ARRAY(protocolVersion, processId, zygoteProcessId, pythonVersion, torchVersion,
                       livenessWordWorks, shared, callLimit, client, settings, memoryLimit)
};

/// A shared supervisor's answer to kLoadPackage: it refuses the package or holds it. Descriptors:
/// none, or a package of another program that may have the same bytes, see kConfirmPackage.
struct PackageHeld {
  static constexpr MessageType kType = MessageType::kPackageHeld;
  uint32_t package = 0;
  std::string refusal;  ///< names the limit that was met; empty: not refused
  MSGPACK_DEFINE_ARRAY(package, refusal)
};

/// Another worker serves the slots of `epoch` now, which is being replaced. The client sends this
/// worker no new requests, and answers kWorkerReleased when it does not use the worker any more.
/// The supervisor repeats the message until the client answers or the worker is killed.
struct RetireWorker {
  static constexpr MessageType kType = MessageType::kRetireWorker;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(epoch)
};

/// The worker of `epoch` has unmapped all memory of the client and continues to run.
struct ChannelClosed {
  static constexpr MessageType kType = MessageType::kChannelClosed;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(epoch)
};

/// The supervisor is about to end: calls in flight may complete, new ones are refused. The client
/// answers with kAcknowledgeDrain.
struct Drain {
  static constexpr MessageType kType = MessageType::kDrain;
  std::string text;  ///< for the errors of calls that are refused from now on
  MSGPACK_DEFINE_ARRAY(text)
};

/// An operator wants the client to publish no calls, or to go on. What the client has published may
/// run. The latest message holds. Since version 5.
struct PauseCalls {
  static constexpr MessageType kType = MessageType::kPauseCalls;
  bool paused = false;
  MSGPACK_DEFINE_ARRAY(paused)
};

/// A new worker process, for a slot or as the spare. The client maps the channel and answers
/// kChannelMapped; the worker then attaches (WorkerControl::attached). Descriptors: the worker's
/// pidfd, the client's control segment, the worker's control segment, the first output segment
/// (number 1), the crash log (a memory object that ends with the last output of the worker's error
/// stream; only for reading), the worker's status page (ipc/channel/status_page.h), which is
/// sealed kSingleWriter.
struct IntroduceWorker {
  static constexpr MessageType kType = MessageType::kIntroduceWorker;
  uint64_t epoch = 0;
  int32_t processId = 0;     ///< the supervisor's number of the process, for messages only
  uint64_t outputBytes = 0;  ///< the size of the first output segment
  bool spare = false;        ///< it serves no slot until kAssignWorker
  MSGPACK_DEFINE_ARRAY(epoch, processId, outputBytes, spare)
};

/// From now on the slot is served by `epoch`, which was introduced before. It may come before the
/// kWorkerDied of the worker that served the slot. A shared worker may serve several slots.
struct AssignWorker {
  static constexpr MessageType kType = MessageType::kAssignWorker;
  uint32_t pool = 0;
  uint32_t slot = 0;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(pool, slot, epoch)
};

/// The supervisor has reaped the worker of `epoch`: it can't write any memory any more. So what was
/// lent to it is free again.
struct WorkerDied {
  static constexpr MessageType kType = MessageType::kWorkerDied;
  uint64_t epoch = 0;
  int32_t signal = 0;    ///< 0 if it exited by itself
  int32_t exitCode = 0;  ///< valid if it exited by itself
  MSGPACK_DEFINE_ARRAY(epoch, signal, exitCode)
};

/// The workers of a slot die again and again before they complete a call: the slot stays empty for
/// some time.
struct SlotQuarantined {
  static constexpr MessageType kType = MessageType::kSlotQuarantined;
  uint32_t pool = 0;
  uint32_t slot = 0;
  uint32_t deaths = 0;                  ///< early exits within ISOPOOL_RESTART_WINDOW
  uint32_t retryAfterMilliseconds = 0;  ///< when the supervisor forks a worker for the slot again
  std::string text;                     ///< one line for users
  MSGPACK_DEFINE_ARRAY(pool, slot, deaths, retryAfterMilliseconds, text)
};

/// A call of the client has run for the longest time that the supervisor allows. The client must
/// end the call with the error `text`. The supervisor kills the worker after the grace period
/// unless the call has ended by then.
struct CallTimeOver {
  static constexpr MessageType kType = MessageType::kCallTimeOver;
  uint64_t epoch = 0;
  uint64_t sequence = 0;  ///< the call's number on the channel
  std::string text;
  MSGPACK_DEFINE_ARRAY(epoch, sequence, text)
};

/// A further segment of the worker's output arena. The supervisor sends this before it sends
/// kAddOutputSegment to the worker. Descriptors: the segment.
struct GrantOutputSegment {
  static constexpr MessageType kType = MessageType::kGrantOutputSegment;
  uint64_t epoch = 0;
  uint32_t segment = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(epoch, segment, bytes)
};

/// The worker has removed a segment of its output arena, of which nothing is lent any more: the
/// client unmaps it and answers with kOutputSegmentUnmapped. Since protocol version 5.
struct UnmapOutputSegment {
  static constexpr MessageType kType = MessageType::kUnmapOutputSegment;
  uint64_t epoch = 0;
  uint32_t segment = 0;
  MSGPACK_DEFINE_ARRAY(epoch, segment)
};

/// Answers kRetireInputSegment: no worker of the client maps the segment any more, and the
/// supervisor has closed it. The client may use its number again.
struct InputSegmentReleased {
  static constexpr MessageType kType = MessageType::kInputSegmentReleased;
  uint32_t segment = 0;
  MSGPACK_DEFINE_ARRAY(segment)
};

/// The supervisor can't serve this client, or can't serve it any more (for example, no common
/// version, or the zygote can't start). Then it closes the connection.
struct Failure {
  static constexpr MessageType kType = MessageType::kFailure;
  std::string text;  ///< the reason, for the text of SupervisorLost
  MSGPACK_DEFINE_ARRAY(text)
};

/// One worker of the client in Statistics.
struct WorkerStatistics {
  uint64_t epoch = 0;
  int32_t processId = 0;
  uint32_t pool = 0;  ///< this and `slot`: not of a spare
  uint32_t slot = 0;
  bool spare = false;
  uint64_t completedCalls = 0;  ///< as the worker counts them
  uint64_t outputBytes = 0;     ///< shared memory for its results
  MSGPACK_DEFINE_ARRAY(epoch, processId, pool, slot, spare, completedCalls, outputBytes)
};

/// Answers kRequestStatistics.
struct Statistics {
  static constexpr MessageType kType = MessageType::kStatistics;
  uint64_t token = 0;     ///< of the request
  uint64_t restarts = 0;  ///< replacements of workers that died
  uint64_t zygoteRestarts = 0;
  uint64_t sharedBytes = 0;  ///< of all memory objects that the supervisor made or adopted
  int32_t zygoteProcessId = 0;
  std::vector<WorkerStatistics> workers;
  MSGPACK_DEFINE_ARRAY(token, restarts, zygoteRestarts, sharedBytes, zygoteProcessId, workers)
};

}  // namespace isopool::ipc
