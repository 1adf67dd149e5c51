// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <vector>

#include "base/ids.h"

/// The control plane's messages: rare events between client, supervisor, zygote and worker. Each
/// travels as one msgpack array in one frame (ipc/control/frame.h), with the descriptors that its
/// comment lists, in that order. A field may be added at an array's end only together with a new
/// kProtocolVersion.
namespace isopool::ipc {

inline constexpr uint32_t kProtocolVersion = 3;
/// The oldest version that this build still speaks: both sides name their range, the supervisor
/// takes the highest version that both know.
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
  kOperator = 1,  ///< asks for reports, nothing else
};

/// First message of a client. Descriptors: the client's pidfd.
struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  uint32_t protocolVersion = kProtocolVersion;
  uint32_t layoutVersion = 0;
  int32_t processId = 0;
  uint32_t oldestProtocolVersion = kOldestProtocolVersion;
  uint32_t role = 0;    ///< ClientRole
  std::string program;  ///< what people call it; for reports and to find its class, see docs
  MSGPACK_DEFINE_ARRAY(protocolVersion, layoutVersion, processId, oldestProtocolVersion, role,
                       program)
};

/// Wants `workers` workers in slots 0..workers-1 of a new pool. Answered by kAssignWorker per slot.
/// In a shared supervisor a connection has one pool, and its slots share the workers there are.
struct OpenPool {
  static constexpr MessageType kType = MessageType::kOpenPool;
  uint32_t pool = 0;
  uint32_t workers = 0;
  MSGPACK_DEFINE_ARRAY(pool, workers)
};

/// The pool's slots are forgotten, and its workers killed; shared ones are detached from instead.
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
/// and what one worker writes to it all see. A shared supervisor answers kPackageHeld for an
/// archive.
struct LoadPackage {
  static constexpr MessageType kType = MessageType::kLoadPackage;
  uint32_t package = 0;
  uint64_t bytes = 0;
  std::string name;  ///< as the user named it, for messages
  bool shared = false;
  uint64_t digestLow = 0;  ///< XXH3-128 of an archive's bytes: a hint of which are the same
  uint64_t digestHigh = 0;
  MSGPACK_DEFINE_ARRAY(package, bytes, name, shared, digestLow, digestHigh)
};

/// The client compared its package with the one that kPackageHeld offered. If they are the `same`
/// the offered one is mapped and the client's own is let go, by both sides.
struct ConfirmPackage {
  static constexpr MessageType kType = MessageType::kConfirmPackage;
  uint32_t package = 0;
  bool same = false;
  MSGPACK_DEFINE_ARRAY(package, same)
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

/// The client saw the liveness word of `epoch` orphaned, its ring poisoned, or is about to kill it.
/// `reason`: why it kills it; empty if it does not.
/// The supervisor of a private pool kills it (again) and replaces it without waiting for its pidfd.
/// To that of a shared pool it is a hint: unless the worker proves dead or stuck, the client's
/// channel is closed (ChannelClosed) and another one introduced.
struct ReportDeath {
  static constexpr MessageType kType = MessageType::kReportDeath;
  uint64_t epoch = 0;
  std::string reason;
  MSGPACK_DEFINE_ARRAY(epoch, reason)
};

/// A call of the client runs past its deadline in a shared worker, which the supervisor kills after
/// its grace period unless the call has ended by then. `sequence`: the call's number on the
/// channel.
struct ReportOverdue {
  static constexpr MessageType kType = MessageType::kReportOverdue;
  uint64_t epoch = 0;
  uint64_t sequence = 0;
  MSGPACK_DEFINE_ARRAY(epoch, sequence)
};

/// Nothing of the client uses the retiring worker any more (kRetireWorker).
struct WorkerReleased {
  static constexpr MessageType kType = MessageType::kWorkerReleased;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(epoch)
};

/// From here on the client publishes no call (kDrain); those in flight it waits for.
struct AcknowledgeDrain {
  static constexpr MessageType kType = MessageType::kAcknowledgeDrain;
  uint32_t unused = 0;
  MSGPACK_DEFINE_ARRAY(unused)
};

/// Of an operator: answered by kReport.
struct RequestReport {
  static constexpr MessageType kType = MessageType::kRequestReport;
  uint64_t token = 0;
  MSGPACK_DEFINE_ARRAY(token)
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
  std::string pythonVersion;      ///< "3.11.2", of the workers
  std::string torchVersion;       ///< "2.13.0+cpu"
  bool livenessWordWorks = true;  ///< false: deaths are seen through pidfds alone on this system
  bool shared = false;            ///< several programs use the supervisor, and its workers
  uint32_t callLimit = 0;         ///< calls that the client may have in flight; 0: no limit
  uint64_t client = 0;  ///< the supervisor's number of the client, as workers' status pages name it
  MSGPACK_DEFINE_ARRAY(protocolVersion, processId, zygoteProcessId, pythonVersion, torchVersion,
                       livenessWordWorks, shared, callLimit, client)
};

/// Answers kLoadPackage in a shared supervisor: the package is refused, or held. Descriptors: none,
/// or one: another program loaded what may be the same bytes, see kConfirmPackage.
struct PackageHeld {
  static constexpr MessageType kType = MessageType::kPackageHeld;
  uint32_t package = 0;
  std::string refusal;  ///< empty, or which limit was met
  MSGPACK_DEFINE_ARRAY(package, refusal)
};

/// Another worker serves the slots of `epoch` now, which is to be replaced. The client sends it
/// nothing new and says kWorkerReleased when nothing of its own uses it any more; it is asked again
/// and again until it does, or until the worker is killed.
struct RetireWorker {
  static constexpr MessageType kType = MessageType::kRetireWorker;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(epoch)
};

/// The worker of `epoch` has unmapped all that it had of the client, and lives on.
struct ChannelClosed {
  static constexpr MessageType kType = MessageType::kChannelClosed;
  uint64_t epoch = 0;
  MSGPACK_DEFINE_ARRAY(epoch)
};

/// The supervisor is about to end: calls in flight may, new ones are refused. Answered by
/// kAcknowledgeDrain.
struct Drain {
  static constexpr MessageType kType = MessageType::kDrain;
  std::string text;
  MSGPACK_DEFINE_ARRAY(text)
};

/// A new worker process, for a slot or as the spare. The client maps the channel and answers
/// kChannelMapped; the worker then attaches (WorkerControl::attached). Descriptors: the worker's
/// pidfd, client control, worker control, the first output segment (number 1), the crash log (a
/// memory object that ends with what the worker last wrote to its error stream; read-only use), the
/// worker's status page (ipc/channel/status_page.h, sealed kSingleWriter).
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

/// A call of the client has run for as long as the supervisor lets a call run. Its caller is to end
/// with `text`; the supervisor kills the worker after its grace period unless the call has ended by
/// then.
struct CallTimeOver {
  static constexpr MessageType kType = MessageType::kCallTimeOver;
  uint64_t epoch = 0;
  uint64_t sequence = 0;  ///< the call's number on the channel
  std::string text;
  MSGPACK_DEFINE_ARRAY(epoch, sequence, text)
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

/// The supervisor can't serve this client, or not any more (versions, zygote can't start). It
/// closes after it.
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

// ---- supervisor -> operator -----------------------------------------------------------------

struct ReportedCount {
  std::string name;
  uint64_t count = 0;
  MSGPACK_DEFINE_ARRAY(name, count)
};

struct ReportedWorker {
  uint64_t epoch = 0;
  int32_t processId = 0;
  std::string group;  ///< "shared", or the class that it is dedicated to
  int32_t slot = -1;  ///< -1: a spare, or one that retires
  std::string state;  ///< starting, serving, spare, retiring, dying
  uint64_t ageMilliseconds = 0;
  uint64_t completedCalls = 0;
  uint32_t clients = 0;        ///< attached
  uint64_t runningClient = 0;  ///< whose call runs; 0: it is idle
  uint64_t runningMilliseconds = 0;
  uint32_t waitingClients = 0;  ///< with a call that waits
  uint64_t privateBytes = 0;    ///< resident anonymous memory, beyond what its zygote has
  uint64_t outputBytes = 0;     ///< shared memory for its results
  uint64_t lentBlocks = 0;      ///< results that clients hold
  uint64_t lentBytes = 0;
  uint64_t zombieBytes =
      0;  ///< of clients that are gone, still referred to by what the worker keeps
  std::vector<ReportedCount> forbiddenActs;
  MSGPACK_DEFINE_ARRAY(epoch, processId, group, slot, state, ageMilliseconds, completedCalls,
                       clients, runningClient, runningMilliseconds, waitingClients, privateBytes,
                       outputBytes, lentBlocks, lentBytes, zombieBytes, forbiddenActs)
};

struct ReportedSlot {
  std::string group;
  uint32_t slot = 0;
  uint64_t restarts = 0;
  std::string lastDeath;  ///< of its workers: why; empty if none died
  uint64_t lastDeathMillisecondsAgo = 0;
  MSGPACK_DEFINE_ARRAY(group, slot, restarts, lastDeath, lastDeathMillisecondsAgo)
};

struct ReportedClient {
  uint64_t number = 0;
  int32_t processId = 0;
  uint32_t userId = 0;
  uint32_t groupId = 0;
  std::string program;
  std::string clientClass;  ///< of the configuration; empty: none fits
  uint32_t share = 1;
  std::string state;  ///< greeting, attached, draining, leaving
  uint64_t attachedMilliseconds = 0;
  uint32_t slots = 0;
  uint64_t queuedCalls = 0;  ///< in its rings, not yet taken by a worker
  uint64_t runningCalls = 0;
  uint64_t completedCalls = 0;
  uint64_t inputBytes = 0;
  uint64_t packageBytes = 0;
  uint64_t outputBytes = 0;
  uint64_t models = 0;
  uint64_t overdueCalls = 0;  ///< that ran past their deadline
  uint64_t refusals = 0;      ///< for a limit
  uint64_t handles = 0;       ///< objects in workers that it refers to
  uint64_t handleBytes = 0;   ///< of the workers' private memory that those keep
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
  std::vector<std::string> missingProtections;  ///< that this kernel can't give
  uint64_t restarts = 0;                        ///< of workers that died
  uint64_t recycled = 0;                        ///< workers replaced on purpose
  uint64_t unfit = 0;  ///< of the restarts: workers that user code left unfit for other programs
  uint64_t zygoteRestarts = 0;
  uint64_t sharedBytes = 0;  ///< of all memory objects that the supervisor holds
  uint64_t refusedConnections = 0;
  std::vector<ReportedWorker> workers;
  std::vector<ReportedSlot> slots;
  std::vector<ReportedClient> clients;
  std::vector<ReportedModel> models;
  bool complete = true;  ///< false: the lists are longer than what a message takes
  MSGPACK_DEFINE_ARRAY(token, version, processId, zygoteProcessId, address, state,
                       uptimeMilliseconds, pythonVersion, torchVersion, sandbox, missingProtections,
                       restarts, recycled, unfit, zygoteRestarts, sharedBytes, refusedConnections,
                       workers, slots, clients, models, complete)
};

// ---- supervisor <-> zygote ------------------------------------------------------------------

/// Descriptors: the worker's end of its control socket, the read end of its lifeline, its doorbell
/// (a memory object of one page, read-only for it), its crash log, its status page (of one page).
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
  bool livenessWordWorks = true;
  std::vector<std::string> missingProtections;  ///< of the sandbox, that this kernel can't give
  bool needsFolders = false;  ///< the kernel lets workers have none in memory (WorkerFolders)
  MSGPACK_DEFINE_ARRAY(pythonVersion, torchVersion, livenessWordWorks, missingProtections,
                       needsFolders)
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
// After each message to a worker the supervisor rings its doorbell.

/// Serve a client. Descriptors: client control (sealed kSingleWriter by then), worker control, the
/// first output segment (number 1).
struct AttachChannel {
  static constexpr MessageType kType = MessageType::kAttachChannel;
  uint64_t epoch = 0;
  uint64_t client = 0;  ///< the supervisor's number of the client
  uint64_t outputBytes = 0;
  uint32_t share = 1;       ///< calls that it gets for one of a client with share 1, if both wait
  uint32_t leaseLimit = 0;  ///< results that it may hold; what is more is refused. 0: no limit
  /// Private memory that its handles may keep; a handle that is more is refused. 0: no limit
  uint64_t memoryLimit = 0;
  MSGPACK_DEFINE_ARRAY(epoch, client, outputBytes, share, leaseLimit, memoryLimit)
};

/// Forget the client once no call of it runs. Answered by kChannelDetached.
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
  std::vector<uint32_t> packages;  ///< the worker may never have been told of some of them
  MSGPACK_DEFINE_ARRAY(client, packages)
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
  std::string text;          ///< names the limit and the knob
  bool clientLimit = false;  ///< it is what the client may have, not what the worker may
  MSGPACK_DEFINE_ARRAY(client, text, clientLimit)
};

/// The client may not have this segment: calls that lie in it are refused with the text, which
/// names the limit.
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

/// Nothing of the client is mapped any more.
struct ChannelDetached {
  static constexpr MessageType kType = MessageType::kChannelDetached;
  uint64_t client = 0;
  MSGPACK_DEFINE_ARRAY(client)
};

/// User code tried what the sandbox forbids, `times` since the last such message.
struct ForbiddenAct {
  static constexpr MessageType kType = MessageType::kForbiddenAct;
  std::string act;  ///< "system call ptrace", "file /etc/shadow"
  uint64_t times = 0;
  MSGPACK_DEFINE_ARRAY(act, times)
};

}  // namespace isopool::ipc
