// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <vector>

#include "base/ids.h"

/// The control messages, which report rare events between client, supervisor, zygote and worker.
/// Each is one msgpack array in one frame (ipc/control/frame.h), with the descriptors that its
/// comment lists, in that order. Fields may be added only at an array's end, and only together with
/// a new kProtocolVersion.
namespace isopool::ipc {

inline constexpr uint32_t kProtocolVersion = 3;
/// The oldest version that this build supports. Both sides send their range; the supervisor chooses
/// the highest version that both support.
inline constexpr uint32_t kOldestProtocolVersion = 3;

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
  kConfirmPackage,
  kReportOverdue,
  kWorkerReleased,
  kAcknowledgeDrain,
  kRequestReport,
  // supervisor -> client
  kWelcome = 100,
  kIntroduceWorker,
  kAssignWorker,
  kWorkerDied,
  kSlotQuarantined,
  kGrantOutputSegment,
  kFailure,
  kStatistics,
  kPackageHeld,
  kRetireWorker,
  kChannelClosed,
  kDrain,
  kReport,
  kCallTimeOver,
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
  kRefuseInputSegment,
  // worker -> supervisor
  kWorkerReady = 500,
  kChannelAttached,
  kRequestOutputSegment,
  kChannelDetached,
  kForbiddenAct,
};

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
  uint32_t layoutVersion = 0;
  int32_t processId = 0;
  uint32_t oldestProtocolVersion = kOldestProtocolVersion;
  uint32_t role = 0;    ///< ClientRole
  std::string program;  ///< the program's name, for reports and to find its class, see docs
  MSGPACK_DEFINE_ARRAY(protocolVersion, layoutVersion, processId, oldestProtocolVersion, role,
                       program)
};

/// Requests `workers` workers in slots 0..workers-1 of a new pool. The supervisor answers with one
/// kAssignWorker per slot. In a shared supervisor a connection has one pool, and its slots share
/// the existing workers.
struct OpenPool {
  static constexpr MessageType kType = MessageType::kOpenPool;
  uint32_t pool = 0;
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
  uint32_t segment = 0;
  uint64_t bytes = 0;
  MSGPACK_DEFINE_ARRAY(segment, bytes)
};

/// A package for every worker of this client, now and later. The client need not wait before it
/// uses the package: a worker that gets a call with it reads its control socket first. Only a
/// shared supervisor answers, with kPackageHeld for an archive. Descriptors: the package. An
/// archive is sealed kReadOnly and mapped copy-on-write. The memory of a moved object is `shared`:
/// sealed kFixedSize, and all workers see what one of them writes to it.
struct LoadPackage {
  static constexpr MessageType kType = MessageType::kLoadPackage;
  uint32_t package = 0;
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
/// not.
/// The supervisor of a private pool kills the worker (again) and replaces it without waiting for
/// its pidfd. A shared supervisor treats the message as a hint: unless it finds the worker dead or
/// stuck, it closes the client's channel (ChannelClosed) and introduces another one.
struct ReportDeath {
  static constexpr MessageType kType = MessageType::kReportDeath;
  uint64_t epoch = 0;
  std::string reason;
  MSGPACK_DEFINE_ARRAY(epoch, reason)
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
  uint32_t unused = 0;
  MSGPACK_DEFINE_ARRAY(unused)
};

/// An operator requests a report. The supervisor answers with kReport and the same token.
struct RequestReport {
  static constexpr MessageType kType = MessageType::kRequestReport;
  uint64_t token = 0;
  MSGPACK_DEFINE_ARRAY(token)
};

/// The supervisor answers with kStatistics and the same token.
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
  std::string pythonVersion;      ///< "3.11.2", of the workers
  std::string torchVersion;       ///< "2.13.0+cpu"
  bool livenessWordWorks = true;  ///< false: on this system only pidfds show a worker's death
  bool shared = false;            ///< several programs use the supervisor and its workers
  uint32_t callLimit = 0;         ///< calls that the client may have in flight; 0: no limit
  uint64_t client = 0;  ///< the supervisor's number of the client, as in workers' status pages
  MSGPACK_DEFINE_ARRAY(protocolVersion, processId, zygoteProcessId, pythonVersion, torchVersion,
                       livenessWordWorks, shared, callLimit, client)
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
  std::string text;
  MSGPACK_DEFINE_ARRAY(text)
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

/// The supervisor has reaped the worker of `epoch`: it can't write any memory any more.
struct WorkerDied {
  static constexpr MessageType kType = MessageType::kWorkerDied;
  uint64_t epoch = 0;
  int32_t signal = 0;  ///< 0 if it exited by itself
  int32_t exitCode = 0;
  MSGPACK_DEFINE_ARRAY(epoch, signal, exitCode)
};

/// The workers of a slot die again and again before they complete a call: the slot stays empty for
/// some time.
struct SlotQuarantined {
  static constexpr MessageType kType = MessageType::kSlotQuarantined;
  uint32_t pool = 0;
  uint32_t slot = 0;
  uint32_t deaths = 0;
  uint32_t retryAfterMilliseconds = 0;
  std::string text;  ///< one line for users
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

/// The supervisor can't serve this client, or can't serve it any more (for example, no common
/// version, or the zygote can't start). Then it closes the connection.
struct Failure {
  static constexpr MessageType kType = MessageType::kFailure;
  std::string text;
  MSGPACK_DEFINE_ARRAY(text)
};

/// One worker of the client in Statistics.
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

/// Answers kRequestStatistics.
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

// ---- supervisor -> operator -----------------------------------------------------------------

// The parts of a Report, and last the message itself.

struct ReportedCount {
  std::string name;
  uint64_t count = 0;
  MSGPACK_DEFINE_ARRAY(name, count)
};

struct ReportedWorker {
  uint64_t epoch = 0;
  int32_t processId = 0;
  std::string group;  ///< "shared", or the class to which the worker is dedicated
  int32_t slot = -1;  ///< -1: a spare, or a retiring worker
  std::string state;  ///< starting, serving, spare, retiring, dying
  uint64_t ageMilliseconds = 0;
  uint64_t completedCalls = 0;
  uint32_t clients = 0;        ///< attached
  uint64_t runningClient = 0;  ///< the client whose call runs; 0: the worker is idle
  uint64_t runningMilliseconds = 0;
  uint32_t waitingClients = 0;  ///< clients with a call that waits
  uint64_t privateBytes = 0;    ///< resident anonymous memory in excess of its zygote's
  uint64_t outputBytes = 0;     ///< shared memory for its results
  uint64_t lentBlocks = 0;      ///< results that clients hold
  uint64_t lentBytes = 0;
  /// In arenas of clients that are gone, to which objects of the worker still refer.
  uint64_t zombieBytes = 0;
  std::vector<ReportedCount> forbiddenActs;
  MSGPACK_DEFINE_ARRAY(epoch, processId, group, slot, state, ageMilliseconds, completedCalls,
                       clients, runningClient, runningMilliseconds, waitingClients, privateBytes,
                       outputBytes, lentBlocks, lentBytes, zombieBytes, forbiddenActs)
};

struct ReportedSlot {
  std::string group;
  uint32_t slot = 0;
  uint64_t restarts = 0;
  std::string lastDeath;  ///< why a worker of the slot died last; empty if none died
  uint64_t lastDeathMillisecondsAgo = 0;
  MSGPACK_DEFINE_ARRAY(group, slot, restarts, lastDeath, lastDeathMillisecondsAgo)
};

struct ReportedClient {
  uint64_t number = 0;
  int32_t processId = 0;
  uint32_t userId = 0;
  uint32_t groupId = 0;
  std::string program;
  std::string clientClass;  ///< class of the configuration; empty: none matches
  uint32_t share = 1;
  std::string state;  ///< greeting, attached, draining, leaving
  uint64_t attachedMilliseconds = 0;
  uint32_t slots = 0;
  uint64_t queuedCalls = 0;  ///< calls in its rings that no worker has taken yet
  uint64_t runningCalls = 0;
  uint64_t completedCalls = 0;
  uint64_t inputBytes = 0;
  uint64_t packageBytes = 0;
  uint64_t outputBytes = 0;
  uint64_t models = 0;
  uint64_t overdueCalls = 0;  ///< calls that ran past their deadline
  uint64_t refusals = 0;      ///< requests that were refused because a limit was met
  uint64_t handles = 0;       ///< objects in workers to which the client's handles refer
  uint64_t handleBytes = 0;   ///< private memory of workers that these objects keep
  MSGPACK_DEFINE_ARRAY(number, processId, userId, groupId, program, clientClass, share, state,
                       attachedMilliseconds, slots, queuedCalls, runningCalls, completedCalls,
                       inputBytes, packageBytes, outputBytes, models, overdueCalls, refusals,
                       handles, handleBytes)
};

struct ReportedModel {
  std::string name;
  uint64_t bytes = 0;
  std::string digest;  ///< hexadecimal
  std::vector<uint64_t> clients;
  MSGPACK_DEFINE_ARRAY(name, bytes, digest, clients)
};

/// The state of a shared supervisor at one moment.
struct Report {
  static constexpr MessageType kType = MessageType::kReport;
  uint64_t token = 0;
  std::string version;
  int32_t processId = 0;
  int32_t zygoteProcessId = 0;
  std::string address;
  std::string state;  ///< starting, serving, draining
  uint64_t uptimeMilliseconds = 0;
  std::string pythonVersion;
  std::string torchVersion;
  std::string sandbox;
  std::vector<std::string> missingProtections;  ///< of the sandbox, not supported by this kernel
  uint64_t restarts = 0;                        ///< replacements of workers that died
  uint64_t recycled = 0;                        ///< healthy workers that were replaced
  uint64_t unfit = 0;  ///< of the restarts: workers that user code left unfit for other programs
  uint64_t zygoteRestarts = 0;
  uint64_t sharedBytes = 0;  ///< of all memory objects that the supervisor holds
  uint64_t refusedConnections = 0;
  std::vector<ReportedWorker> workers;
  std::vector<ReportedSlot> slots;
  std::vector<ReportedClient> clients;
  std::vector<ReportedModel> models;
  bool complete = true;  ///< false: the lists were cut, because a message can't hold all of them
  MSGPACK_DEFINE_ARRAY(token, version, processId, zygoteProcessId, address, state,
                       uptimeMilliseconds, pythonVersion, torchVersion, sandbox, missingProtections,
                       restarts, recycled, unfit, zygoteRestarts, sharedBytes, refusedConnections,
                       workers, slots, clients, models, complete)
};

// ---- supervisor <-> zygote ------------------------------------------------------------------

/// Fork a worker. Answered by kWorkerForked or kForkFailed. Descriptors: the worker's end of its
/// control socket, the read end of its lifeline, its doorbell (a memory object of one page,
/// read-only for the worker), its crash log, its status page (of one page).
struct ForkWorker {
  static constexpr MessageType kType = MessageType::kForkWorker;
  uint64_t epoch = 0;
  uint64_t seed = 0;  ///< for torch's and numpy's random number generators
  MSGPACK_DEFINE_ARRAY(epoch, seed)
};

/// The zygote's first message: it can fork workers.
struct ZygoteReady {
  static constexpr MessageType kType = MessageType::kZygoteReady;
  std::string pythonVersion;
  std::string torchVersion;
  bool livenessWordWorks = true;
  std::vector<std::string> missingProtections;  ///< of the sandbox, not supported by this kernel
  bool needsFolders = false;  ///< workers can't have folders in memory here (WorkerFolders)
  MSGPACK_DEFINE_ARRAY(pythonVersion, torchVersion, livenessWordWorks, missingProtections,
                       needsFolders)
};

/// The zygote can't serve: for example, an import failed, or it has more than one thread. The
/// zygote then exits.
struct ZygoteFailed {
  static constexpr MessageType kType = MessageType::kZygoteFailed;
  std::string text;
  MSGPACK_DEFINE_ARRAY(text)
};

/// The worker runs. It is a child of the supervisor, because its parent has exited.
struct WorkerForked {
  static constexpr MessageType kType = MessageType::kWorkerForked;
  uint64_t epoch = 0;
  int32_t processId = 0;
  MSGPACK_DEFINE_ARRAY(epoch, processId)
};

/// The zygote could not fork the worker. `text`: why.
struct ForkFailed {
  static constexpr MessageType kType = MessageType::kForkFailed;
  uint64_t epoch = 0;
  std::string text;
  MSGPACK_DEFINE_ARRAY(epoch, text)
};

// ---- supervisor <-> worker ------------------------------------------------------------------
// After each message to a worker the supervisor rings its doorbell.

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
  MSGPACK_DEFINE_ARRAY(client, text, clientLimit)
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

/// User code tried something that the sandbox forbids, `times` since the last such message.
struct ForbiddenAct {
  static constexpr MessageType kType = MessageType::kForbiddenAct;
  std::string act;  ///< "system call ptrace", "file /etc/shadow"
  uint64_t times = 0;
  MSGPACK_DEFINE_ARRAY(act, times)
};

}  // namespace isopool::ipc
