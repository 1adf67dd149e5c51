// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/call_loop.h"

#include <Python.h>
#include <poll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "base/system_call.h"
#include "ipc/crash_point.h"
#include "ipc/worker_exit.h"
#include "worker/process/crash_log.h"
#include "worker/process/process_title.h"
#include "worker/python/interpreter.h"
#include "worker/python/released_gil.h"
#include "worker/serve/isopool_module.h"
#include "worker/serve/operation_threads.h"

namespace isopool::worker {

namespace {

// Exits because a message of the supervisor can't be handled: this worker lacks what the message
// brought. The supervisor starts a replacement.
[[noreturn]] void giveUp(const std::string& why) {
  logError("isopool worker: " + why + "\n");
  ::_exit(ipc::kGivenUpWorkerExit);
}

// The supervisor logs the last line of the crash log as the cause of the exit.
[[noreturn]] void leaveSpoiled(const std::string& why) {
  logError("isopool worker: exits, because " + why + "\n");
  ::_exit(ipc::kUnfitWorkerExit);
}

[[noreturn]] void leaveUnfit(const std::string& why) {
  leaveSpoiled("after calls of one program it is not fit for another: " + why);
}

// To be checked for every descriptor before it is mapped. If a client sent a wrong one, only that
// client is refused.
bool hasObject(const ipc::Frame& frame, size_t index, uint64_t bytes, ipc::Seal seal,
               const char* what) {
  if (index < frame.descriptors.size() &&
      ipc::memoryObjectHas(frame.descriptors[index], bytes, seal)) {
    return true;
  }
  logError(std::string("isopool worker: ") + what +
           " was rejected: it lacks the required size or seals\n");
  return false;
}

// Handlers and timers of user code end with its program.
void restoreSignals() noexcept {
  const PyRef restore = workerFunction("startup", "restore_signals");
  if (restore) PyRef::steal(::PyObject_CallNoArgs(restore.get()));
  ::PyErr_Clear();
}

void restoreInterpreter() noexcept {
  const PyRef restore = workerFunction("interpreter_settings", "restore");
  if (restore) PyRef::steal(::PyObject_CallNoArgs(restore.get()));
  ::PyErr_Clear();
}

// A worker without idle time updates its status page after this many calls.
constexpr uint32_t kCallsPerUpdate = 1024;

// In ns. A worker that wakes up often comes to the processor of the client that wakes it, where
// neither can spin and each call takes three times as long. The kernel leaves them there: two
// processes that mostly sleep are no load. If it brings them together again at once, all moves
// together take 0.2 % of the time.
constexpr int64_t kBetweenMoves = 10'000'000;

// In ns. The step of the coarse clock, at most.
constexpr int64_t kCoarse = 10'000'000;

// Takes a few nanoseconds and is exact to a few milliseconds, which is enough for a status display.
int64_t coarseNow() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

CallLoop::CallLoop(base::Epoch epoch, ipc::ControlSocket control, ipc::Mapping doorbell,
                   ipc::Mapping statusPage, RoutedBlocks& blocks, Sandbox& sandbox)
    : epoch_(epoch),
      control_(std::move(control)),
      doorbellMapping_(std::move(doorbell)),
      doorbell_(*reinterpret_cast<const ipc::SharedWord<uint32_t>*>(doorbellMapping_.data())),
      statusPageMapping_(std::move(statusPage)),
      statusPage_(*new (statusPageMapping_.data()) ipc::WorkerStatusPage),
      blocks_(blocks),
      models_(statusPage_),
      runner_(*this, copies_, sandbox, models_),
      fitness_(sandbox, {control_.fd(), crashLogFd()}) {
  setIsopoolModuleWorker(epoch_, copies_, models_, sandbox);
}

void CallLoop::run() {
  control_.send(ipc::WorkerReady{epoch_.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kWorkerReady);
  // Messages that came before the first look at the doorbell.
  readMessages();
  for (;;) {
    if (doorbellRung()) readMessages();
    const bool served = serveNext();
    if (anyDetached() && collection_.untilRested().count() == 0) dropDetachedChannels();
    if (inputsRemoved_) leaveRemovedInputs();
    if (!served) waitForWork();
    if (collection_.overdue()) collect();
    if (const auto due = outputTrim_.due(); due && coarseNow() >= *due - kCoarse) {
      outputTrim_.run(channels_, [this] { return anythingToDo(); });
    }
    if (threads_.nextLook() && coarseNow() >= *threads_.nextLook()) lookForCodeLeft();
  }
}

bool CallLoop::serveNext() {
  uint32_t waiting = 0;
  const auto next = turns_.next(
      channels_,
      [&](const auto& channel) {
        const bool waits = !channel->detached && channel->memory->end.callReady();
        if (!waits) channel->packages.forgetRemoved();
        waiting += waits ? 1 : 0;
        return waits;
      },
      [](const auto& channel) -> const Turns& { return channel->turns; });
  if (next == channels_.end()) return false;
  // A reference to the channel, not the iterator: while a call waits for a message, a further
  // channel may be attached.
  ClientLink& channel = **next;
  requireFitnessFor(channel);
  statusPage_.waitingClients.store(waiting - 1, std::memory_order_relaxed);
  startCodeOf(channel);
  ipc::reachCrashPoint(ipc::CrashPoint::kStatusPageBusyStored);
  const CallRunner::Served served = serve(channel);
  leaveInferenceMode();
  // What an only client leaves is noted when another one comes, or when it leaves.
  if (channels_.size() > 1) noteCodeOf(channel);
  models_.unnameMade();
  endCode();
  ipc::reachCrashPoint(ipc::CrashPoint::kStatusPageIdleStored);
  // Calls that wait have not started: they run on other workers.
  if (isToLeave()) ::_exit(ipc::kServedWorkerExit);
  if (served == CallRunner::Served::kCall) turns_.served(channel.turns);
  if (++servedSinceUpdate_ >= kCallsPerUpdate) updateStatusPage();
  return served != CallRunner::Served::kNothing;
}

CallRunner::Served CallLoop::serve(ClientLink& channel) {
  try {
    return runner_.serveOne(channel);
  } catch (const base::SystemCallError& error) {
    if (error.errorNumber() != EBADF) throw;
    leaveSpoiled(std::string("user code closed descriptors that are not its own: ") + error.what());
  }
}

// The call has not started yet: if the worker exits here, this call and all that wait run
// on another worker.
void CallLoop::requireFitnessFor(const ClientLink& channel) {
  const std::string failure = fitness_.failureBefore(channel.memory->client);
  if (!failure.empty()) leaveUnfit(failure);
}

// Before its code runs.
void CallLoop::switchTo(ClientLink& channel) noexcept {
  const uint64_t client = channel.memory->client;
  if (client == lastClient_) return;
  if (ClientLink* former = find(lastClient_)) former->modes = EnteredModes::ofThisThread();
  leaveClient();
  forgetRaisedByOtherThread();  // code of the former client
  forgetOperationThreads();
  if (channel.modes) channel.modes->apply();
  // A copy of what the worker began with: NumPy's allocator, for example, is in it.
  if (!channel.context) channel.context = PyRef::steal(::PyContext_Copy(noContext_.get()));
  if (channel.context && ::PyContext_Enter(channel.context.get()) == 0) {
    context_ = PyRef::share(channel.context.get());
  }
  ::PyErr_Clear();
  lastClient_ = client;
  statusPage_.lastClient.store(client, std::memory_order_relaxed);
}

void CallLoop::leaveClient() noexcept {
  noModes_.apply();
  restoreInterpreter();
  leaveEventLoop();
  if (context_) ::PyContext_Exit(context_.get());
  ::PyErr_Clear();
  context_.reset();
}

void CallLoop::startCodeOf(ClientLink& channel) noexcept {
  statusPage_.runningSince.store(coarseNow(), std::memory_order_relaxed);
  models_.runNone();
  switchTo(channel);
  statusPage_.runningClient.store(channel.memory->client, std::memory_order_relaxed);
}

void CallLoop::noteCodeOf(const ClientLink& channel) {
  threads_.ranCodeOf(channel.memory->client);
  hooks_.ranCodeOf(channel.memory->client);
}

void CallLoop::endCode() noexcept { statusPage_.runningClient.store(0, std::memory_order_relaxed); }

void CallLoop::updateStatusPage() noexcept {
  servedSinceUpdate_ = 0;
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  uint64_t kept = 0;
  for (const auto& channel : channels_) {
    channel->memory->output.collectReturned();
    blocks += channel->memory->output.leasesOut();
    bytes += channel->memory->output.arena().bytesInUse();
    kept += channel->memory->output.keptBytes();
  }
  uint64_t zombies = 0;
  for (const auto& memory : remains_) zombies += memory->output.arena().bytesInUse();
  statusPage_.lentBlocks.store(blocks, std::memory_order_relaxed);
  statusPage_.lentBytes.store(bytes, std::memory_order_relaxed);
  statusPage_.zombieBytes.store(zombies, std::memory_order_relaxed);
  statusPage_.keptBytes.store(kept, std::memory_order_relaxed);
  ipc::reachCrashPoint(ipc::CrashPoint::kStatusPageBooksStored);
}

bool CallLoop::doorbellRung() const noexcept {
  return doorbell_.load(std::memory_order_acquire) != seenDoorbell_;
}

bool CallLoop::anythingToDo() const noexcept {
  if (doorbellRung()) return true;
  return std::any_of(channels_.begin(), channels_.end(),
                     [](const auto& channel) { return channel->memory->end.callReady(); });
}

int64_t CallLoop::spinAllowance() const noexcept {
  int64_t allowance = 0;
  for (const auto& channel : channels_) {
    allowance = std::max(allowance, channel->memory->end.spinAllowance());
  }
  return allowance;
}

void CallLoop::leaveClientsProcessor(int64_t now) noexcept {
  if (now - movedAt_ < kBetweenMoves) return;
  const bool lacks = std::any_of(channels_.begin(), channels_.end(), [](const auto& channel) {
    return channel->memory->end.lacksProcessor();
  });
  if (!lacks) return;
  movedAt_ = now;
  ipc::leaveProcessor();
}

void CallLoop::waitForWork() {
  const int64_t begin = ipc::monotonicNow();
  leaveClientsProcessor(begin);
  if (!ipc::spinUntil([this] { return anythingToDo(); }, begin, spinAllowance())) {
    const auto forEachEnd = [this](auto&& step) {
      for (const auto& channel : channels_) step(channel->memory->end);
    };
    ipc::sleepUnless(
        forEachEnd, [this] { return anythingToDo(); },
        [this, begin] {
          if (servedSinceUpdate_ != 0) updateStatusPage();
          watches_.clear();
          watches_.add(&doorbell_, seenDoorbell_);
          for (const auto& channel : channels_) {
            const auto [word, expected] = channel->memory->end.watch();
            watches_.add(word, expected);
          }
          std::optional<std::chrono::nanoseconds> time = collection_.idleTime(begin);
          if (const auto due = outputTrim_.due()) {
            const std::chrono::nanoseconds toTrim(std::max<int64_t>(0, *due - begin));
            if (!time || toTrim < *time) time = toTrim;
          }
          if (anyDetached() && (!time || collection_.untilRested() < *time)) {
            time = collection_.untilRested();
          }
          if (const auto look = threads_.nextLook()) {
            const std::chrono::nanoseconds toLook(std::max<int64_t>(0, *look - begin) + kCoarse);
            if (!time || toLook < *time) time = toLook;
          }
          const ReleasedGil released;
          watches_.sleep(time);
        });
    const auto left = collection_.idleTime(begin);
    if (left && *left == left->zero()) {
      if (!anythingToDo()) collect();
    } else if (!anythingToDo()) {
      // Woken without work: a client is copying the input of a call that it publishes next.
      ipc::spinUntil([this] { return anythingToDo(); }, ipc::monotonicNow(), spinAllowance());
    }
  }
}

bool CallLoop::anyDetached() const noexcept {
  return std::any_of(channels_.begin(), channels_.end(),
                     [](const auto& channel) { return channel->detached; });
}

// Destructors of the clients' objects run here, and other clients' calls wait: the status page says
// whose code runs, and the supervisor limits its time while it awaits ChannelDetached. That is also
// why the collection runs now: an importer and its modules, for example, form reference cycles.
void CallLoop::dropDetachedChannels() {
  for (auto& channel : channels_) {
    if (!channel->detached) continue;
    startCodeOf(*channel);
    channel->handles.clear();
    channel->objects.clear();
    channel->packages.clear();
    noteCodeOf(*channel);
    threads_.left(channel->memory->client);
    hooks_.left(channel->memory->client);
  }
  leaveClient();
  lastClient_ = 0;
  restoreSignals();
  guard_.activate(true);
  collection_.run();
  endCode();
  for (const auto& channel : channels_) {
    if (channel->detached) detach(*channel);
  }
  std::erase_if(channels_, [](const auto& channel) { return channel->detached; });
  if (channels_.size() == 1) channels_.front()->alone = true;
  guard_.activate(channels_.size() > 1);
  dropRemains();
  updateStatusPage();
}

void CallLoop::detach(ClientLink& channel) {
  ipc::reachCrashPoint(ipc::CrashPoint::kClientObjectsDropped);
  const uint64_t client = channel.memory->client;
  channel.memory->borrowed.detach(*channel.memory);
  ipc::reachCrashPoint(ipc::CrashPoint::kKeptMemoryPrivatised);
  // No client consumes these answers any more.
  for (const ClientLink::Blob& blob : channel.blobs) {
    channel.memory->output.dropReference(blob.block);
  }
  channel.blobs.clear();
  channel.memory->output.detach();
  ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentsLeft);
  channel.memory->end.detach();
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelDetached);
  remains_.push_back(std::move(channel.memory));
  control_.send(ipc::ChannelDetached{client});
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelDetachedSent);
  const std::string failure = fitness_.failureAfter(client);
  if (!failure.empty()) leaveUnfit(failure);
}

void CallLoop::leaveRemovedInputs() {
  inputsRemoved_ = false;
  for (const auto& channel : channels_) {
    for (const base::SegmentId id : channel->removedInputs) {
      if (auto segment = channel->memory->inputs.remove(id)) {
        channel->memory->borrowed.leave(std::move(segment));
      }
      ipc::reachCrashPoint(ipc::CrashPoint::kInputSegmentLeft);
      control_.send(ipc::InputSegmentUnmapped{channel->memory->client, id.value});
      ipc::reachCrashPoint(ipc::CrashPoint::kInputSegmentUnmappedSent);
    }
    channel->removedInputs.clear();
  }
}

void CallLoop::dropRemains() {
  std::erase_if(remains_, [this](const std::shared_ptr<ChannelMemory>& memory) {
    if (!memory->output.empty()) return false;
    blocks_.remove(memory->output);
    return true;  // borrowed storages keep it as long as they live
  });
}

void CallLoop::collect() {
  statusPage_.collecting.store(1, std::memory_order_relaxed);
  collection_.run();
  statusPage_.collecting.store(0, std::memory_order_relaxed);
  if (remains_.empty()) return;
  dropRemains();
  updateStatusPage();
}

void CallLoop::lookForCodeLeft() {
  const ipc::CodeLeft left{threads_.leftBehind(), hooks_.leftBehind()};
  if (left.threads != 0 || left.hooks) control_.send(left);
}

// ---- the supervisor ---------------------------------------------------------------------------

bool CallLoop::readMessages() {
  bool any = false;
  seenDoorbell_ = doorbell_.load(std::memory_order_acquire);
  try {
    for (;;) {
      const ipc::ReceiveResult result = control_.receive();
      while (auto frame = control_.next()) {
        handleMessage(*frame);
        any = true;
      }
      if (result == ipc::ReceiveResult::kPeerGone) leaveSupervisor();
      if (result == ipc::ReceiveResult::kWouldBlock) return any;
    }
  } catch (const std::exception& error) {
    // For example, the process had no room for the descriptors of a message.
    const std::string failure = fitness_.failure();
    if (!failure.empty()) leaveUnfit(failure);
    giveUp(error.what());
  }
}

// Runs no destructors and no atexit handlers: no shared memory has a name that must be removed, and
// a finalizer may hang.
void CallLoop::leaveSupervisor() {
  if (!fitness_.hasDescriptors()) leaveSpoiled("user code closed descriptors that are not its own");
  ::_exit(0);
}

bool CallLoop::waitForMessage(int64_t deadline) {
  for (;;) {
    if (readMessages()) return true;
    const int64_t left = deadline - ipc::monotonicNow();
    if (left <= 0) return false;
    const ReleasedGil released;
    control_.waitReadable(std::chrono::milliseconds(left / 1'000'000 + 1));
  }
}

void CallLoop::requestOutputSegment(uint64_t client, size_t bytes) noexcept {
  try {
    const auto result =
        control_.send(ipc::RequestOutputSegment{client, bytes}, {}, std::chrono::milliseconds(0));
    if (result == ipc::SendResult::kPeerGone) leaveSupervisor();
    // A part of the frame may have been sent: all later frames would be unreadable.
    if (result != ipc::SendResult::kSent)
      giveUp("exits, because the supervisor does not read its messages");
    ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentRequested);
  } catch (const std::exception& error) {
    giveUp(error.what());
  }
}

bool CallLoop::retireOutputSegment(uint64_t client, base::SegmentId segment) noexcept {
  try {
    ipc::OutgoingFrame frame =
        ipc::encodeMessage(ipc::RetireOutputSegment{client, segment.value}, 0);
    const auto result = control_.trySend(frame, nullptr, 0);
    if (result == ipc::SendResult::kPeerGone) return true;
    // The supervisor is slow or stopped: the next trim tries again.
    if (result == ipc::SendResult::kWouldBlock && !frame.begun()) return false;
    if (result != ipc::SendResult::kSent) {
      giveUp("exits, because the supervisor does not read its messages");
    }
    ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentRetired);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool CallLoop::tell(const ipc::ForbiddenAct& act) {
  // The frame is small compared with the socket's buffer: it is sent completely or not at all.
  return control_.send(act, {}, std::chrono::milliseconds(0)) != ipc::SendResult::kWouldBlock;
}

ClientLink* CallLoop::find(uint64_t client) const noexcept {
  for (const auto& channel : channels_) {
    if (channel->memory->client == client && !channel->detached) return channel.get();
  }
  return nullptr;
}

void CallLoop::handleMessage(ipc::Frame& frame) {
  switch (frame.type) {
    case ipc::MessageType::kAttachChannel:
      return attachChannel(frame);
    case ipc::MessageType::kDetachChannel:
      if (ClientLink* channel = find(ipc::decodeMessage<ipc::DetachChannel>(frame).client)) {
        channel->detached = true;
      }
      return;
    case ipc::MessageType::kMapInputSegment:
      return mapInputSegment(frame);
    case ipc::MessageType::kMapPackage:
      return mapPackage(frame);
    case ipc::MessageType::kUnmapPackage: {
      const auto message = ipc::decodeMessage<ipc::UnmapPackage>(frame);
      if (ClientLink* channel = find(message.client)) {
        for (const uint32_t package : message.packages) {
          if (!channel->packages.remove(base::PackageId(package))) continue;
          collection_.request();
          channel->newestOfDropped = channel->handles.newest();
        }
        ipc::reachCrashPoint(ipc::CrashPoint::kPackageUnmapped);
      }
      return;
    }
    case ipc::MessageType::kAddOutputSegment:
      return addOutputSegment(frame);
    case ipc::MessageType::kRefuseOutputSegment: {
      const auto message = ipc::decodeMessage<ipc::RefuseOutputSegment>(frame);
      if (ClientLink* channel = find(message.client)) {
        channel->memory->output.segmentRefused({message.text, message.clientLimit, message.ofSystem,
                                                std::chrono::milliseconds(message.patience)});
      }
      return;
    }
    case ipc::MessageType::kUnmapInputSegment:
      return removeInputSegment(ipc::decodeMessage<ipc::UnmapInputSegment>(frame));
    case ipc::MessageType::kTrimOutput:
      // Not now: a call that runs may wait for the room that was just granted.
      if (ClientLink* channel = find(ipc::decodeMessage<ipc::TrimOutput>(frame).client)) {
        outputTrim_.request(*channel, ipc::monotonicNow());
      }
      return;
    case ipc::MessageType::kRefuseInputSegment: {
      const auto message = ipc::decodeMessage<ipc::RefuseInputSegment>(frame);
      if (ClientLink* channel = find(message.client)) {
        channel->memory->inputs.refuse(base::SegmentId(message.segment), message.text);
      }
      return;
    }
    case ipc::MessageType::kSetTitle:
      return setProcessTitle(ipc::decodeMessage<ipc::SetTitle>(frame).role);
    default:
      giveUp("exits, because the supervisor sent a message of type " +
             std::to_string(static_cast<uint32_t>(frame.type)) + ", which workers do not handle");
  }
}

CallLoop::Mapped CallLoop::map(const char* what, const std::function<void()>& step) {
  std::string shortage = "malloc";
  // With mlockall(MCL_FUTURE) of user code the kernel maps nothing beyond RLIMIT_MEMLOCK.
  ::munlockall();
  try {
    step();
    return Mapped::kYes;
  } catch (const base::SystemCallError& error) {
    shortage = error.what();
    if (error.errorNumber() != ENOMEM) {
      logError(std::string("isopool worker: a client is refused: the kernel maps no memory for ") +
               what + ": " + shortage + "\n");
      return Mapped::kRefused;
    }
  } catch (const std::bad_alloc&) {
  }
  const std::string failure = fitness_.failure();
  if (!failure.empty()) leaveUnfit(failure);
  logError(std::string("isopool worker: no room for ") + what + ": " + shortage + "\n");
  return Mapped::kNoRoom;
}

void CallLoop::attachChannel(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::AttachChannel>(frame);
  if (!hasObject(frame, 0, ipc::kClientControlBytes, ipc::Seal::kSingleWriter,
                 "a client's control segment") ||
      !hasObject(frame, 1, ipc::kWorkerControlBytes, ipc::Seal::kFixedSize,
                 "a worker's control segment") ||
      !hasObject(frame, 2, message.outputBytes, ipc::Seal::kFixedSize, "an output segment")) {
    return refuseChannel(message.client);
  }
  std::unique_ptr<ClientLink> channel;
  const auto make = [&] { channel = makeChannel(message, frame); };
  if (map("another client", make) != Mapped::kYes || channel == nullptr) {
    return refuseChannel(message.client);
  }
  ChannelMemory& memory = *channel->memory;
  for (const auto& other : channels_) {
    if (other->alone) noteCodeOf(*other);
    other->alone = false;
    other->memory->output.privatiseKept(copies_);
  }
  channel->alone = channels_.empty();
  channel->turns.share = message.share;
  channel->leaseLimit = message.leaseLimit;
  channel->handles.limitBytes(message.memoryLimit);
  channels_.push_back(std::move(channel));
  guard_.activate(channels_.size() > 1);
  memory.end.attach();
  control_.send(ipc::ChannelAttached{message.client});
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelAttachedSent);
}

std::unique_ptr<ClientLink> CallLoop::makeChannel(const ipc::AttachChannel& message,
                                                  ipc::Frame& frame) {
  const base::Fd& ownControl = frame.descriptors[1];
  ipc::Mapping own = ipc::mapShared(ownControl, 0, ipc::kWorkerControlBytes,
                                    ipc::Access::kReadWrite, ipc::Prefault::kYes);
  ipc::sealMemoryObject(ownControl, ipc::Seal::kSingleWriter);
  ipc::reachCrashPoint(ipc::CrashPoint::kWorkerSegmentSealed);
  ipc::Mapping client = ipc::mapShared(frame.descriptors[0], 0, ipc::kClientControlBytes,
                                       ipc::Access::kReadOnly, ipc::Prefault::kYes);
  auto channel = std::make_unique<ClientLink>(std::make_shared<ChannelMemory>(
      message.client, epoch_, std::move(own), std::move(client), *this));
  OutputBlocks& output = channel->memory->output;
  if (!channel->memory->end.headerValid()) {
    logError(
        "isopool worker: a client is refused: its control segment has another layout or epoch\n");
    return nullptr;
  }
  if (!output.addSegment(base::SegmentId(1), std::move(frame.descriptors[2]),
                         message.outputBytes)) {
    throw base::SystemCallError("mmap", "an output segment", ENOMEM);
  }
  const auto space = output.arena().addressSpace();
  if (!blocks_.add(output, space.data(), space.data() + space.size())) {
    logError("isopool worker: a client is refused: the worker has too many clients\n");
    return nullptr;
  }
  return channel;
}

// Always answers: the supervisor waits, and treats a worker that does not answer as unresponsive.
void CallLoop::refuseChannel(uint64_t client) { control_.send(ipc::ChannelDetached{client}); }

void CallLoop::mapInputSegment(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::MapInputSegment>(frame);
  ClientLink* channel = find(message.client);
  if (channel == nullptr) return;
  if (!hasObject(frame, 0, message.bytes, ipc::Seal::kFixedSize, "an input segment") ||
      message.segment == 0 || message.segment >= kMaxInputSegments ||
      channel->memory->inputs.find(base::SegmentId(message.segment)) != nullptr) {
    channel->detached = true;
    return;
  }
  const base::SegmentId id(message.segment);
  InputSegments& inputs = channel->memory->inputs;
  switch (map("an input segment",
              [&] { inputs.add(id, std::move(frame.descriptors[0]), message.bytes); })) {
    case Mapped::kYes:
      break;
    case Mapped::kNoRoom:
      return inputs.refuse(
          id, "the worker has no address space left for memory shared with this program");
    case Mapped::kRefused:
      channel->detached = true;
      return;
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kInputSegmentMapped);
}

// A call may run and use the segment if the client breaks the protocol.
void CallLoop::removeInputSegment(const ipc::UnmapInputSegment& message) {
  ClientLink* channel = find(message.client);
  if (channel == nullptr) return;
  channel->removedInputs.push_back(base::SegmentId(message.segment));
  inputsRemoved_ = true;
}

void CallLoop::mapPackage(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::MapPackage>(frame);
  ClientLink* channel = find(message.client);
  if (channel == nullptr) return;
  const auto seal = message.shared ? ipc::Seal::kFixedSize : ipc::Seal::kReadOnly;
  if (!hasObject(frame, 0, message.bytes, seal, "a package")) {
    channel->detached = true;
    return;
  }
  const auto sharing = message.shared ? Package::Sharing::kShared : Package::Sharing::kCopyOnWrite;
  const base::PackageId id(message.package);
  const auto add = [&] {
    channel->packages.add(std::make_unique<Package>(
        id, message.name, std::move(frame.descriptors[0]), message.bytes, sharing));
  };
  if (map("a package", add) != Mapped::kYes) {
    channel->detached = true;
    return;
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kPackageMapped);
}

void CallLoop::addOutputSegment(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::AddOutputSegment>(frame);
  ClientLink* channel = find(message.client);
  if (channel == nullptr) return;
  if (!hasObject(frame, 0, message.bytes, ipc::Seal::kFixedSize, "an output segment")) return;
  OutputBlocks& output = channel->memory->output;
  switch (map("an output segment", [&] {
    output.addSegment(base::SegmentId(message.segment), std::move(frame.descriptors[0]),
                      message.bytes);
  })) {
    case Mapped::kYes:
      break;
    case Mapped::kNoRoom:
      output.segmentRefused({.reason = "the worker has no memory or address space left to map it",
                             .clientLimit = false,
                             .ofSystem = true});
      break;
    case Mapped::kRefused:
      channel->detached = true;
      return;
  }
  outputTrim_.grown(ipc::monotonicNow());
}

}  // namespace isopool::worker
