// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/worker.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/system_call.h"
#include "ipc/channel/status_page.h"
#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"

namespace isopool::supervisor {

namespace {

// Bounds the memory that a worker takes by reporting invented names.
constexpr size_t kMostForbiddenActs = 64;
// From the end of the control socket until the worker is killed, if it has not exited by then.
constexpr base::Milliseconds kTimeToEnd(100);
// At most this many messages are queued for the worker, with descriptors of their own. Further
// messages about clients wait in the attachments, without descriptors.
constexpr size_t kMostWaiting = 16;
// A worker that is asleep so many times in a row, and in between, is not to be awaited.
constexpr base::Milliseconds kSleepLook(1000);
constexpr int kMostSleptLooks = 5;
// Threads that a program has left behind may begin to hold the lock when it has been detached.
constexpr base::Milliseconds kWatched(30'000);
// How long a worker is stopped before that is logged.
constexpr base::Milliseconds kStopReport(1000);
// How long calls wait for it although no other worker serves.
constexpr base::Milliseconds kStopPatience(5000);

}  // namespace

Worker::Worker(Services& services, base::Epoch epoch, bool spare, std::string gpu, Events events)
    : services_(services),
      epoch_(epoch),
      gpu_(std::move(gpu)),
      events_(std::move(events)),
      bornAt_(services.loop.now()),
      crashLog_(ipc::createGrowingMemoryObject("isopool:crash-log")),
      statusPage_(ipc::createMemoryObject("isopool:status-page", ipc::kPageBytes)),
      deadline_(services.loop),
      stopLook_(services.loop),
      sleepLook_(services.loop),
      self_(this) {
  (void)ipc::keepWritable(crashLog_);  // all its clients get it
  auto [ours, theirs] = ipc::ControlSocket::makePair();
  base::Fd lifelineEnd;
  lifeline_ = base::Lifeline::make(lifelineEnd);
  connection_ = std::make_unique<Connection>(
      services.loop, std::move(ours),
      Connection::Events{.frame = [this](ipc::Frame& frame) { handle(frame); },
                         .over = [this](const std::string& reason) { controlOver(reason); },
                         .sent =
                             [this] {
                               doorbell_.ring();
                               tellMore();
                             }});
  if (services_.options.collectOutput) {
    output_.emplace(services_.loop, services_.outputQuota, events_.outputSource);
  }
  requestFork(std::move(theirs), std::move(lifelineEnd), spare);
  if (services_.options.privatePool) services_.stock.expectWorker();
}

Worker::~Worker() = default;

void Worker::requestFork(base::Fd control, base::Fd lifelineEnd, bool spare) {
  ForkRequest request;
  request.epoch = epoch_;
  request.control = std::move(control);
  request.lifeline = std::move(lifelineEnd);
  request.doorbell = doorbell_.descriptor();
  request.crashLog = crashLog_.duplicate();
  request.statusPage = statusPage_.duplicate();
  if (output_) {
    request.output = output_->writeEnd().duplicate();
    output_->releaseWriteEnd();
  }
  request.lowPriority = spare;
  request.gpu = gpu_;
  request.settled = [self = self_.weak()](const ForkOutcome& outcome) {
    if (Worker* alive = self.get()) alive->forkSettled(outcome);
  };
  services_.zygote.fork(std::move(request));
}

void Worker::forkSettled(const ForkOutcome& outcome) {
  forkSettled_ = true;
  if (outcome.kind == ForkOutcome::Kind::kForked) {
    try {
      process_ = std::make_unique<ChildProcess>(services_.loop, services_.processes, outcome.pid,
                                                [this](const ExitStatus& status) {
                                                  connection_->readNow();
                                                  if (output_) output_->finish();
                                                  lose(DeathCause::kUnknown, "");
                                                  events_.gone(status);
                                                });
    } catch (const base::SystemCallError& error) {
      lose(DeathCause::kNotStarted, error.what());
      return goneSoon();
    }
    if (stage_ == Stage::kDying) return process_->kill();
    stage_ = Stage::kStarting;
    confine();
    deadline_.setAfter(services_.options.workerTimeout, [this] { loseLate("to start"); });
    if (saidReady_ && confined_) becomeReady();
    if (controlOver_) controlOver(*controlOver_);
    return;
  }
  lifeline_.cut();
  if (outcome.kind == ForkOutcome::Kind::kFailed) {
    lose(DeathCause::kNotStarted, "the zygote could not fork the worker: " + outcome.text);
  } else if (stage_ != Stage::kDying) {
    stop();
    events_.notMade();
  }
  goneSoon();
}

void Worker::kill() {
  if (stage_ != Stage::kDying) stop();
  if (process_ != nullptr) return process_->kill();
  lifeline_.cut();
  // Withdraws the request at most once: afterwards Zygote has no record of it.
  if (!forkSettled_ && services_.zygote.withdraw(epoch_)) goneSoon();
}

void Worker::stop() {
  stage_ = Stage::kDying;
  if (services_.options.privatePool && !wasIntroduced_) services_.stock.cancelExpectation();
  deadline_.cancel();
  stopLook_.cancel();
  sleepLook_.cancel();
  for (auto& [client, attachment] : attachments_) {
    attachment.deadline.cancel();
    attachment.overdue.cancel();
  }
}

// ---- its channels ----------------------------------------------------------------------------

Attachment& Worker::introduce(ClientId client, ChannelMemory memory) {
  wasIntroduced_ = true;
  return attachments_.try_emplace(client, services_.loop, std::move(memory)).first->second;
}

void Worker::attach(ClientId client, uint32_t share, const ClientLimits& limits) {
  Attachment& attachment = attachments_.at(client);
  attachment.stage = Attachment::Stage::kMapped;
  allowMemory();
  attachment.untold.channel = {epoch_.value, client.value,  attachment.memory.outputBytes,
                               share,        limits.leases, limits.memory};
  tell(client);
  awaitAnswer(client);
}

void Worker::detach(ClientId client) {
  Attachment* attachment = this->attachment(client);
  if (attachment == nullptr || stage_ == Stage::kDying) return;
  if (attachment->stage == Attachment::Stage::kDetaching) return;
  const bool known = attachment->knownToWorker();
  attachment->stage = Attachment::Stage::kDetaching;
  // All pending messages but those about outputs: a call of the client may wait for that memory.
  attachment->untold.packages.clear();
  attachment->untold.segments.clear();
  attachment->untold.droppedPackages.clear();
  attachment->untold.droppedSegments.clear();
  if (!known) {
    events_.detached(client);
    return forget(client);
  }
  send(ipc::DetachChannel{client.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kDetachChannelSent);
  limitLastCode(client);
  watchedUntil_ = services_.loop.now() + kWatched;
  awaitAnswer(client);
}

// A call of the client that has left gets the grace period, and so does what the worker runs before
// it answers: destructors of the client's objects. A run that began after the last look gets a
// whole period from the next one.
void Worker::limitLastCode(ClientId client) {
  const auto limit = [this, client, seen = lastCodeOf(client)] {
    if (!seen || seen != lastCodeOf(client)) return limitLastCode(client);
    lose(DeathCause::kClientLeft, "code of client " + std::to_string(client.value) +
                                      ", which has left, continued for more than " +
                                      std::to_string(services_.options.grace.count()) +
                                      " ms (ISOPOOL_GRACE)");
  };
  attachments_.at(client).overdue.setAfter(services_.options.grace, limit);
}

// Which run of the client's code goes on; none if none does.
std::optional<uint64_t> Worker::lastCodeOf(ClientId client) const {
  if (runningClient() != client.value) return std::nullopt;
  return statusWord(offsetof(ipc::WorkerStatusPage, runningSince));
}

// A worker reads its messages between two calls, and other clients' calls may take long. If it runs
// no code when the time begins and none when it ends, and has not answered, it is stopped or hangs.
void Worker::awaitAnswer(ClientId client) {
  const bool hadTime = hasTimeToAnswer();
  const auto look = [this, client, hadTime] {
    if (!hadTime || !hasTimeToAnswer()) return awaitAnswer(client);
    const bool attaching = attachments_.at(client).stage != Attachment::Stage::kDetaching;
    loseLate(attaching ? "to attach a channel" : "to detach a channel");
  };
  attachments_.at(client).deadline.setAfter(services_.options.workerTimeout, look);
  watchItsSleep();
}

// Such a worker can't wake up for the message: with time to answer, it is not stopped, does not
// wait for a processor or a disk, and still sleeps. A thread that user code has started then holds
// Python's global lock, mostly in native code.
void Worker::watchItsSleep() {
  // Threads of a private pool's only program are its own.
  if (services_.options.privatePool || services_.options.noKill) return;
  if (sleepLook_.isSet()) return;
  sleptLooks_ = 0;
  lookWhetherItSleeps(std::nullopt);
}

void Worker::lookWhetherItSleeps(std::optional<std::chrono::nanoseconds> before) {
  const bool awaited = std::any_of(attachments_.begin(), attachments_.end(), [](const auto& entry) {
    return entry.second.deadline.isSet() ||
           (entry.second.usable() && entry.second.queuedCalls() != 0);
  });
  if (!awaited && services_.loop.now() > watchedUntil_) return;
  const auto now = awaited && hasTimeToAnswer() && !collectsGarbage()
                       ? services_.processes.activityOfSleeping(pid())
                       : std::nullopt;
  const bool slept = now && before && *now - *before < kSleepLook / 10;
  sleptLooks_ = slept ? sleptLooks_ + 1 : 0;
  if (sleptLooks_ == kMostSleptLooks) {
    return lose(DeathCause::kUnresponsive,
                "it slept for " + std::to_string(kMostSleptLooks) +
                    " s while messages or calls waited for it: a thread that code of a program has "
                    "started probably holds Python's global lock (GIL)");
  }
  sleepLook_.setAfter(kSleepLook, [this, now] { lookWhetherItSleeps(now); });
}

bool Worker::collectsGarbage() const {
  return statusWord(offsetof(ipc::WorkerStatusPage, collecting)) != 0;
}

bool Worker::hasTimeToAnswer() const { return runningClient() == 0 && !connection_->heldUp(); }

bool Worker::overdue(ClientId client, uint64_t sequence, const std::string& reason) {
  Attachment* attachment = this->attachment(client);
  if (attachment == nullptr || !attachment->usable()) return false;
  // The timer of an earlier call, which has ended, is replaced.
  if (attachment->overdue.isSet() && runningClient() == client.value &&
      attachment->startedSequence() == attachment->overdueSequence) {
    return false;
  }
  attachment->overdueSequence = sequence;
  attachment->overdue.setAfter(services_.options.grace, [this, client, attachment, reason] {
    if (runningClient() != client.value ||
        attachment->startedSequence() != attachment->overdueSequence) {
      return;
    }
    lose(DeathCause::kOverdue,
         "a call of client " + std::to_string(client.value) + " " + reason + " and continued for " +
             std::to_string(services_.options.grace.count()) + " ms (ISOPOOL_GRACE)");
  });
  return true;
}

void Worker::forget(ClientId client) {
  const auto found = attachments_.find(client);
  if (found == attachments_.end()) return;
  callsOfForgotten_ += found->second.completedCalls();
  servedForgotten_ += found->second.servedCalls();
  if (found->second.ranCode() && ranForgotten_.size() < 2) ranForgotten_.insert(client);
  if (found->second.inLine) std::erase(line_, client);
  attachments_.erase(found);
  ipc::reachCrashPoint(ipc::CrashPoint::kAttachmentClosed);
}

uint32_t Worker::reportsOf(ClientId client) const {
  const auto found = reports_.find(client);
  return found != reports_.end() ? found->second : 0;
}

bool Worker::reportedByAll() const {
  return std::all_of(attachments_.begin(), attachments_.end(), [this](const auto& entry) {
    return !entry.second.usable() || reportsOf(entry.first) > 0;
  });
}

Attachment* Worker::attachment(ClientId client) {
  const auto found = attachments_.find(client);
  return found != attachments_.end() ? &found->second : nullptr;
}

// ---- messages to the worker about its clients -------------------------------------------------

void Worker::mapPackage(const ipc::MapPackage& message, std::shared_ptr<PackageMemory> memory) {
  const ClientId client(message.client);
  attachments_.at(client).packages[message.package] = message.bytes;
  allowMemory();
  Attachment::Untold& untold = attachments_.at(client).untold;
  const auto dropped = untold.droppedPackages.find(message.package);
  if (dropped != untold.droppedPackages.end()) {
    const bool isMapped = dropped->second;
    untold.droppedPackages.erase(dropped);
    if (isMapped) return;
  }
  untold.packages[message.package] = {message, std::move(memory)};
  tell(client);
}

// Sent also for a package that the worker does not know: a notification in its ring may name one
// that was loaded and dropped before the worker got the message.
void Worker::unmapPackage(ClientId client, uint32_t package) {
  Attachment::Untold& untold = attachments_.at(client).untold;
  const bool isMapped = untold.packages.erase(package) == 0;
  attachments_.at(client).packages.erase(package);
  untold.droppedPackages.insert_or_assign(package, isMapped);
  tell(client);
}

void Worker::mapSegment(ClientId client, uint32_t number, std::shared_ptr<InputSegment> segment) {
  attachments_.at(client).inputBytes += segment->bytes;
  allowMemory();
  attachments_.at(client).untold.segments.emplace_back(number, std::move(segment));
  tell(client);
}

void Worker::unmapSegment(ClientId client, uint32_t number) {
  Attachment& attachment = attachments_.at(client);
  const auto isIt = [number](const auto& entry) { return entry.first == number; };
  if (std::erase_if(attachment.untold.segments, isIt) > 0) return;
  attachment.unmapping.insert(number);
  attachment.untold.droppedSegments.push_back(number);
  tell(client);
}

void Worker::grantOutput(const ipc::AddOutputSegment& message,
                         std::shared_ptr<const base::Fd> segment) {
  const ClientId client(message.client);
  allowMemory();
  attachments_.at(client).untold.outputs.emplace_back(message, std::move(segment));
  tell(client);
}

void Worker::tell(ClientId client) {
  if (!std::exchange(attachments_.at(client).inLine, true)) line_.push_back(client);
  tellMore();
}

// Sends one message of each client in turn, so that a client with many messages delays no other.
void Worker::tellMore() {
  // Not again from within: a message that is sent at once calls Events::sent, which calls this.
  if (std::exchange(telling_, true)) return;
  while (!line_.empty() && connection_->waiting() < kMostWaiting) {
    const ClientId client = line_.front();
    Attachment& attachment = attachments_.at(client);
    if (!tellNext(client, attachment)) break;
    line_.pop_front();
    attachment.inLine = !attachment.untold.empty();
    if (attachment.inLine) line_.push_back(client);
  }
  telling_ = false;
}

// Returns false if no descriptor is left for the message: the connection's Events::sent is called
// when it is time to try again.
bool Worker::tellNext(ClientId client, Attachment& attachment) {
  Attachment::Untold& untold = attachment.untold;
  if (attachment.stage == Attachment::Stage::kMapped) {
    ChannelMemory& memory = attachment.memory;
    if (!connection_->offer(untold.channel, {memory.clientControl.get(), memory.workerControl.get(),
                                             memory.output.get()})) {
      return false;
    }
    attachment.stage = Attachment::Stage::kAttaching;
    memory.output.close();
    ipc::reachCrashPoint(ipc::CrashPoint::kAttachChannelSent);
  } else if (!untold.outputs.empty()) {
    const auto& [message, segment] = untold.outputs.front();
    if (!connection_->offer(message, {segment->get()})) return false;
    untold.outputs.pop_front();
    ipc::reachCrashPoint(ipc::CrashPoint::kAddOutputSegmentSent);
  } else if (!untold.packages.empty()) {
    const auto first = untold.packages.begin();
    const auto& [message, memory] = first->second;
    if (!connection_->offer(message, {memory->object.get()})) return false;
    untold.packages.erase(first);
  } else if (!untold.segments.empty()) {
    const auto& [number, segment] = untold.segments.front();
    if (!segment->refusal.empty()) {
      send(ipc::RefuseInputSegment{client.value, number, segment->refusal});
    } else if (!connection_->offer(ipc::MapInputSegment{client.value, number, segment->bytes},
                                   {segment->object.get()})) {
      return false;
    }
    untold.segments.pop_front();
  } else if (!untold.droppedSegments.empty()) {
    send(ipc::UnmapInputSegment{client.value, untold.droppedSegments.front()});
    untold.droppedSegments.pop_front();
    ipc::reachCrashPoint(ipc::CrashPoint::kUnmapInputSegmentSent);
  } else {
    tellOfDropped(client, untold.droppedPackages);
  }
  return true;
}

void Worker::tellOfDropped(ClientId client, std::map<uint32_t, bool>& dropped) {
  constexpr size_t kMostInMessage = 1000;
  if (dropped.empty()) return;
  ipc::UnmapPackage message{client.value, {}};
  while (!dropped.empty() && message.packages.size() < kMostInMessage) {
    message.packages.push_back(dropped.begin()->first);
    dropped.erase(dropped.begin());
  }
  send(message);
}

// ---- figures and messages from the worker -----------------------------------------------------

uint64_t Worker::sharedBytes() const {
  uint64_t bytes = 2 * ipc::kPageBytes;  // doorbell and status page
  for (const auto& [client, attachment] : attachments_) bytes += attachment.sharedBytes();
  return bytes;
}

uint64_t Worker::completedCalls() const {
  uint64_t calls = callsOfForgotten_;
  for (const auto& [client, attachment] : attachments_) calls += attachment.completedCalls();
  return calls;
}

ExitKind Worker::exitKindNow() const {
  uint64_t calls = services_.options.privatePool ? completedCalls() : servedForgotten_;
  for (const auto& [client, attachment] : attachments_) calls += attachment.servedCalls();
  return calls > 0 ? ExitKind::kAfterCall : ExitKind::kBeforeFirstCall;
}

bool Worker::ranCodeOfOthers(ClientId client) const {
  const std::set<ClientId> ran = clientsThatRan();
  return ran.size() > ran.count(client);
}

std::set<ClientId> Worker::clientsThatRan() const {
  std::set<ClientId> ran(ranForgotten_.begin(), ranForgotten_.end());
  for (const auto& [client, attachment] : attachments_) {
    if (attachment.ranCode()) ran.insert(client);
  }
  return ran;
}

uint64_t Worker::statusWord(size_t offset) const {
  uint64_t value = 0;
  const auto got = ::pread(statusPage_.get(), &value, sizeof value, static_cast<off_t>(offset));
  return got == sizeof value ? value : 0;
}

uint64_t Worker::runningClient() const {
  return statusWord(offsetof(ipc::WorkerStatusPage, runningClient));
}

// The status page's times are those of monotonicNow(), the same clock as the loop's.
base::Milliseconds Worker::runningTime() const {
  const std::chrono::nanoseconds since(
      static_cast<int64_t>(statusWord(offsetof(ipc::WorkerStatusPage, runningSince))));
  const std::chrono::nanoseconds now = services_.loop.now().time_since_epoch();
  return std::chrono::duration_cast<base::Milliseconds>(now - std::clamp(since, since.zero(), now));
}

uint64_t Worker::keptBytes() const {
  return std::min(statusWord(offsetof(ipc::WorkerStatusPage, keptBytes)), sharedBytes());
}

bool Worker::busyWith(ClientId client) const {
  const auto found = attachments_.find(client);
  if (found == attachments_.end()) return false;
  // In this order: the worker writes the running client before it moves the ring's head.
  return found->second.queuedCalls() != 0 || runningClient() == client.value;
}

void Worker::handle(ipc::Frame& frame) {
  if (stage_ == Stage::kDying) return;
  switch (frame.type) {
    case ipc::MessageType::kWorkerReady:
      if (saidReady_ || ipc::decodeMessage<ipc::WorkerReady>(frame).epoch != epoch_.value) {
        throw ipc::ProtocolError("WorkerReady a second time or for another epoch");
      }
      saidReady_ = true;
      if (stage_ == Stage::kStarting && confined_) becomeReady();
      return;
    case ipc::MessageType::kChannelAttached: {
      const ClientId client(ipc::decodeMessage<ipc::ChannelAttached>(frame).client);
      Attachment* attachment = this->attachment(client);
      // DetachChannel was sent meanwhile: the worker's answer to it comes next.
      if (attachment != nullptr && attachment->stage == Attachment::Stage::kDetaching) return;
      if (attachment == nullptr || attachment->stage != Attachment::Stage::kAttaching) {
        throw ipc::ProtocolError("ChannelAttached for a channel that is not being attached");
      }
      attachment->deadline.cancel();
      attachment->stage = Attachment::Stage::kUsable;
      ipc::reachCrashPoint(ipc::CrashPoint::kAttachmentUsable);
      return events_.attached(client);
    }
    case ipc::MessageType::kChannelDetached: {
      const ClientId client(ipc::decodeMessage<ipc::ChannelDetached>(frame).client);
      const Attachment* attachment = this->attachment(client);
      if (attachment == nullptr || !attachment->knownToWorker()) {
        throw ipc::ProtocolError("ChannelDetached for an unknown channel");
      }
      events_.detached(client);
      return forget(client);
    }
    case ipc::MessageType::kRequestOutputSegment: {
      const auto request = ipc::decodeMessage<ipc::RequestOutputSegment>(frame);
      const Attachment* attachment = this->attachment(ClientId(request.client));
      if (attachment == nullptr || !attachment->knownToWorker()) {
        throw ipc::ProtocolError("RequestOutputSegment for an unknown channel");
      }
      if (attachment->listening()) events_.segmentWanted(ClientId(request.client), request.bytes);
      return;
    }
    case ipc::MessageType::kRetireOutputSegment:
      return outputRetired(ipc::decodeMessage<ipc::RetireOutputSegment>(frame));
    case ipc::MessageType::kInputSegmentUnmapped:
      return inputUnmapped(ipc::decodeMessage<ipc::InputSegmentUnmapped>(frame));
    case ipc::MessageType::kCodeLeft:
      return events_.codeLeft(ipc::decodeMessage<ipc::CodeLeft>(frame));
    case ipc::MessageType::kForbiddenAct:
      return forbiddenAct(ipc::decodeMessage<ipc::ForbiddenAct>(frame));
    default:
      throw ipc::ProtocolError("unexpected message of type " +
                               std::to_string(static_cast<uint32_t>(frame.type)));
  }
}

void Worker::outputRetired(const ipc::RetireOutputSegment& message) {
  const ClientId client(message.client);
  Attachment* attachment = this->attachment(client);
  if (attachment == nullptr || !attachment->knownToWorker()) {
    throw ipc::ProtocolError("RetireOutputSegment for an unknown channel");
  }
  if (!attachment->listening()) return;
  if (!attachment->retire(message.segment)) {
    throw ipc::ProtocolError("RetireOutputSegment of a segment that the worker does not have");
  }
  events_.segmentRetired(client, message.segment);
}

void Worker::inputUnmapped(const ipc::InputSegmentUnmapped& message) {
  const ClientId client(message.client);
  Attachment* attachment = this->attachment(client);
  if (attachment == nullptr || !attachment->knownToWorker()) {
    throw ipc::ProtocolError("InputSegmentUnmapped for an unknown channel");
  }
  if (attachment->unmapping.erase(message.segment) != 0) events_.inputUnmapped(client);
}

void Worker::forbiddenAct(const ipc::ForbiddenAct& message) {
  std::string act = message.act.substr(0, 256);
  if (forbiddenActs_.size() >= kMostForbiddenActs && forbiddenActs_.count(act) == 0) act = "others";
  uint64_t& times = forbiddenActs_[act];
  events_.forbidden(act, message.times, times == 0);
  times += message.times;
}

void Worker::becomeReady() {
  stage_ = Stage::kReady;
  deadline_.cancel();
  events_.ready();
}

void Worker::controlOver(const std::string& reason) {
  if (!reason.empty()) return lose(DeathCause::kProtocol, "it broke the protocol: " + reason);
  // While the fork is outstanding, the zygote may have died with the worker's end of the socket.
  if (stage_ == Stage::kForking) {
    controlOver_ = reason;
    return;
  }
  if (stage_ == Stage::kDying) return;
  stop();
  // Waits for the worker's own exit status: the process probably ends, unless it only closed the
  // socket.
  deadline_.setAfter(kTimeToEnd, [this] {
    blame(DeathCause::kProtocol, "it closed its control socket but did not exit");
    process_->kill();
  });
  events_.lost();
}

// Programs that limit a process's use of the processor stop and continue it many times a second.
void Worker::stateChanged(bool stopped) {
  if (stage_ == Stage::kDying) return;
  stopLook_.cancel();
  stopReported_ = false;
  if (!stopped) return;
  const base::Milliseconds limit = services_.options.stoppedTimeout;
  const base::Milliseconds look = limit.count() == 0 ? kStopReport : std::min(limit, kStopReport);
  stopLook_.setAfter(look, [this, left = limit - look] { lookWhetherStopped(left); });
}

bool Worker::isStopped() const {
  return pid() != 0 && services_.processes.conditionOf(pid()) == Processes::Condition::kStopped;
}

bool Worker::isStoppedForSomeTime() const {
  const Options& options = services_.options;
  return options.stoppedTimeout.count() != 0 && !options.noKill && isStopped();
}

// Of clients that have no answer from it yet, or whose calls it has not started, and that no other
// worker serves.
bool Worker::onlyItServesCalls() const {
  return std::any_of(attachments_.begin(), attachments_.end(), [this](const auto& entry) {
    const Attachment& attachment = entry.second;
    const bool waits = attachment.usable() ? attachment.queuedCalls() != 0 : attachment.listening();
    return waits && !events_.otherServes(entry.first);
  });
}

// `left`: of its time; negative: it has no limit.
void Worker::lookWhetherStopped(base::Milliseconds left) {
  if (!isStopped()) return;
  if (services_.options.noKill) left = base::Milliseconds(-1);
  const base::Milliseconds lasts = services_.options.stoppedTimeout - left;
  if (!std::exchange(stopReported_, true)) {
    events_.staysStopped(std::max(left, base::Milliseconds(0)), kStopPatience - lasts);
    if (left.count() < 0) return;
  }
  if (left.count() > 0) {
    if (lasts >= kStopPatience && onlyItServesCalls()) {
      return lose(DeathCause::kStopped,
                  "a signal had stopped it for " + std::to_string(kStopPatience.count()) +
                      " ms, calls waited for it, and no other worker could serve them");
    }
    const base::Milliseconds look = std::min(left, kStopReport);
    return stopLook_.setAfter(look, [this, left = left - look] { lookWhetherStopped(left); });
  }
  lose(DeathCause::kStopped, "a signal had stopped it, and it was not continued within " +
                                 std::to_string(services_.options.stoppedTimeout.count()) +
                                 " ms (ISOPOOL_STOPPED_TIMEOUT)");
}

void Worker::lose(DeathCause cause, const std::string& reason) {
  if (stage_ == Stage::kDying) return;
  blame(cause, reason);
  kill();
  events_.lost();
}

void Worker::blame(DeathCause cause, const std::string& reason) {
  if (cause_.empty()) cause_ = reason;
  if (deathCause_ == DeathCause::kUnknown) deathCause_ = cause;
}

void Worker::goneSoon() {
  services_.loop.post([self = self_.weak()] {
    if (Worker* alive = self.get()) alive->events_.gone(std::nullopt);
  });
}

void Worker::loseLate(const char* what) {
  lose(DeathCause::kUnresponsive, "it took longer than " +
                                      std::to_string(services_.options.workerTimeout.count()) +
                                      " ms " + what + " (ISOPOOL_WORKER_TIMEOUT)");
}

}  // namespace isopool::supervisor
