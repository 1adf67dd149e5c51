// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/worker.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ipc/channel/board.h"
#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"
#include "ipc/system_call.h"

namespace isopool::supervisor {

namespace {

// A worker that invents names shall not fill our memory with them.
constexpr size_t kMostForbiddenActs = 64;
// From the end of its control socket to its death, if it dies by itself.
constexpr Milliseconds kTimeToEnd(100);

}  // namespace

Worker::Worker(Services& services, ipc::Epoch epoch, bool spare, Events events)
    : services_(services),
      epoch_(epoch),
      events_(std::move(events)),
      bornAt_(services.loop.now()),
      lastWords_(ipc::createGrowingMemoryObject("isopool:last-words")),
      board_(ipc::createMemoryObject("isopool:board", ipc::kPageBytes)),
      deadline_(services.loop),
      self_(std::make_shared<Worker*>(this)) {
  auto [ours, theirs] = ipc::ControlSocket::makePair();
  ipc::Fd lifelineEnd;
  lifeline_ = Lifeline::make(lifelineEnd);
  connection_ = std::make_unique<Connection>(
      services.loop, std::move(ours),
      Connection::Events{[this](ipc::Frame& frame) { handle(frame); },
                         [this](const std::string& reason) { controlOver(reason); },
                         [this] {
                           bell_.ring();
                           sendDroppedPackages();
                         }});
  requestFork(std::move(theirs), std::move(lifelineEnd), spare);
  if (services_.options.privatePool) services_.stock.expectWorker();
}

Worker::~Worker() = default;

void Worker::requestFork(ipc::Fd control, ipc::Fd lifelineEnd, bool spare) {
  ForkRequest request;
  request.epoch = epoch_;
  request.control = std::move(control);
  request.lifeline = std::move(lifelineEnd);
  request.bell = bell_.descriptor();
  request.lastWords = lastWords_.duplicate();
  request.board = board_.duplicate();
  request.patient = spare;
  request.settled = [self = std::weak_ptr(self_)](const ForkOutcome& outcome) {
    if (const auto alive = self.lock()) (*alive)->forkSettled(outcome);
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
                                                  lose("");
                                                  events_.gone(status);
                                                });
    } catch (const ipc::SystemCallError& error) {
      lose(error.what());
      return goneSoon();
    }
    if (stage_ == Stage::kDying) return process_->kill();
    stage_ = Stage::kStarting;
    expectWithinTimeout(deadline_, "to start");
    if (saidReady_) becomeReady();
    if (controlOver_) controlOver(*controlOver_);
    return;
  }
  lifeline_.cut();
  if (outcome.kind == ForkOutcome::Kind::kFailed) {
    lose("the zygote could not fork it: " + outcome.text);
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
  // Withdrawn at most once: afterwards the zygote does not know it.
  if (!forkSettled_ && services_.zygote.withdraw(epoch_)) goneSoon();
}

void Worker::stop() {
  stage_ = Stage::kDying;
  if (services_.options.privatePool && !wasIntroduced_) services_.stock.cancelExpectation();
  deadline_.cancel();
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
  ChannelMemory& memory = attachment.memory;
  attachment.stage = Attachment::Stage::kAttaching;
  send(ipc::AttachChannel{epoch_.value, client.value, memory.outputBytes, share, limits.leases,
                          limits.memory},
       {memory.clientControl.get(), memory.workerControl.get(), memory.output.get()});
  memory.output.close();
  ipc::reachCrashPoint(ipc::CrashPoint::kAttachChannelSent);
  expectWithinTimeout(attachment.deadline, "to attach a channel");
}

void Worker::detach(ClientId client) {
  Attachment* attachment = this->attachment(client);
  if (attachment == nullptr || stage_ == Stage::kDying) return;
  if (attachment->stage == Attachment::Stage::kIntroduced) {
    events_.detached(client);
    return forget(client);
  }
  if (attachment->stage == Attachment::Stage::kDetaching) return;
  attachment->stage = Attachment::Stage::kDetaching;
  attachment->overdue.cancel();
  send(ipc::DetachChannel{client.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kDetachChannelSent);
  awaitDetached(client);
}

// Between two calls the worker forgets the client. While it runs another's call it is not to blame.
void Worker::awaitDetached(ClientId client) {
  attachments_.at(client).deadline.setAfter(services_.options.grace, [this, client] {
    const uint64_t running = runningClient();
    if (running == 0) return awaitAnswer(client);
    if (running != client.value) return awaitDetached(client);
    lose("a call of client " + std::to_string(client.value) + ", which is gone, ran on for " +
         std::to_string(services_.options.grace.count()) + " ms (ISOPOOL_GRACE)");
  });
}

// It ran no call when it was looked at, so that it reads its messages next: one that does not is
// stopped, or stuck in what it cleans up.
void Worker::awaitAnswer(ClientId client) {
  expectWithinTimeout(attachments_.at(client).deadline, "to let go of a channel");
}

bool Worker::overdue(ClientId client, uint64_t sequence, const std::string& reason) {
  Attachment* attachment = this->attachment(client);
  if (attachment == nullptr || !attachment->usable()) return false;
  // Unless that is of a call that has ended.
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
    lose("a call of client " + std::to_string(client.value) + " " + reason + " and went on for " +
         std::to_string(services_.options.grace.count()) + " ms (ISOPOOL_GRACE)");
  });
  return true;
}

void Worker::forget(ClientId client) {
  const auto found = attachments_.find(client);
  if (found == attachments_.end()) return;
  callsOfForgotten_ += found->second.completedCalls();
  attachments_.erase(found);
  ipc::reachCrashPoint(ipc::CrashPoint::kAttachmentClosed);
}

uint32_t Worker::reportsOf(ClientId client) const {
  const auto found = reports_.find(client);
  return found != reports_.end() ? found->second : 0;
}

bool Worker::reportedByAll() const {
  return std::all_of(attachments_.begin(), attachments_.end(),
                     [this](const auto& entry) { return reportsOf(entry.first) > 0; });
}

Attachment* Worker::attachment(ClientId client) {
  const auto found = attachments_.find(client);
  return found != attachments_.end() ? &found->second : nullptr;
}

// ---- packages --------------------------------------------------------------------------------

void Worker::mapPackage(const ipc::MapPackage& message, const ipc::Fd& object) {
  const ClientId client(message.client);
  Attachment& attachment = attachments_.at(client);
  const auto dropped = attachment.droppedPackages.find(message.package);
  if (dropped != attachment.droppedPackages.end()) {
    const bool isMapped = dropped->second;
    attachment.droppedPackages.erase(dropped);
    if (isMapped) return;
  }
  connection_->sendAbout(ipc::PackageId(message.package), client.value, message, {object.get()});
}

void Worker::unmapPackage(ClientId client, uint32_t package) {
  const bool isMapped = !connection_->revoke(ipc::PackageId(package), client.value);
  attachments_.at(client).droppedPackages.insert_or_assign(package, isMapped);
  packagesDropped_ = true;
  sendDroppedPackages();
}

// The worker is told of all: a notification in its ring may name a package that it was never told of.
void Worker::sendDroppedPackages() {
  constexpr size_t kMostInMessage = 1000;
  if (!packagesDropped_ || !connection_->idle()) return;
  packagesDropped_ = false;
  for (auto& [client, attachment] : attachments_) {
    const auto dropped = std::exchange(attachment.droppedPackages, {});
    ipc::UnmapPackage message{client.value, {}};
    for (const auto& [package, isMapped] : dropped) {
      message.packages.push_back(package);
      if (message.packages.size() < kMostInMessage) continue;
      send(message);
      message.packages.clear();
    }
    if (!message.packages.empty()) send(message);
  }
}

// ---- what it tells of itself -----------------------------------------------------------------

uint64_t Worker::sharedBytes() const {
  uint64_t bytes = 2 * ipc::kPageBytes;  // bell and board
  for (const auto& [client, attachment] : attachments_) bytes += attachment.sharedBytes();
  return bytes;
}

uint64_t Worker::completedCalls() const {
  uint64_t calls = callsOfForgotten_;
  for (const auto& [client, attachment] : attachments_) calls += attachment.completedCalls();
  return calls;
}

uint64_t Worker::boardWord(size_t offset) const {
  uint64_t value = 0;
  const auto got = ::pread(board_.get(), &value, sizeof value, static_cast<off_t>(offset));
  return got == sizeof value ? value : 0;
}

uint64_t Worker::runningClient() const {
  return boardWord(offsetof(ipc::WorkerBoard, runningClient));
}

// The board's times are those of monotonicNow(), which is what the loop's clock counts.
Milliseconds Worker::runningTime() const {
  const std::chrono::nanoseconds since(
      static_cast<int64_t>(boardWord(offsetof(ipc::WorkerBoard, runningSince))));
  const std::chrono::nanoseconds now = services_.loop.now().time_since_epoch();
  return std::chrono::duration_cast<Milliseconds>(now - std::clamp(since, since.zero(), now));
}

bool Worker::busyWith(ClientId client) const {
  const auto found = attachments_.find(client);
  if (found == attachments_.end()) return false;
  // In this order: the worker says that it runs a call before it says that it has taken it.
  return found->second.queuedCalls() != 0 || runningClient() == client.value;
}

void Worker::handle(ipc::Frame& frame) {
  if (stage_ == Stage::kDying) return;
  switch (frame.type) {
    case ipc::MessageType::kWorkerReady:
      if (saidReady_ || ipc::decodeMessage<ipc::WorkerReady>(frame).epoch != epoch_.value) {
        throw ipc::ProtocolError("WorkerReady twice or for another epoch");
      }
      saidReady_ = true;
      if (stage_ == Stage::kStarting) becomeReady();
      return;
    case ipc::MessageType::kChannelAttached: {
      const ClientId client(ipc::decodeMessage<ipc::ChannelAttached>(frame).client);
      Attachment* attachment = this->attachment(client);
      // Told to forget the client meanwhile, it says that next.
      if (attachment != nullptr && attachment->stage == Attachment::Stage::kDetaching) return;
      if (attachment == nullptr || attachment->stage != Attachment::Stage::kAttaching) {
        throw ipc::ProtocolError("ChannelAttached for no such channel");
      }
      attachment->deadline.cancel();
      attachment->stage = Attachment::Stage::kUsable;
      ipc::reachCrashPoint(ipc::CrashPoint::kAttachmentUsable);
      return events_.attached(client);
    }
    case ipc::MessageType::kChannelDetached: {
      const ClientId client(ipc::decodeMessage<ipc::ChannelDetached>(frame).client);
      const Attachment* attachment = this->attachment(client);
      if (attachment == nullptr || attachment->stage == Attachment::Stage::kIntroduced) {
        throw ipc::ProtocolError("ChannelDetached for no such channel");
      }
      events_.detached(client);
      return forget(client);
    }
    case ipc::MessageType::kRequestOutputSegment: {
      const auto request = ipc::decodeMessage<ipc::RequestOutputSegment>(frame);
      const Attachment* attachment = this->attachment(ClientId(request.client));
      if (attachment == nullptr || attachment->stage == Attachment::Stage::kIntroduced) {
        throw ipc::ProtocolError("RequestOutputSegment for no such channel");
      }
      if (attachment->listening()) events_.segmentWanted(ClientId(request.client), request.bytes);
      return;
    }
    case ipc::MessageType::kForbiddenAct:
      return forbiddenAct(ipc::decodeMessage<ipc::ForbiddenAct>(frame));
    default:
      throw ipc::ProtocolError("a worker sends no message of type " +
                               std::to_string(static_cast<uint32_t>(frame.type)));
  }
}

void Worker::forbiddenAct(const ipc::ForbiddenAct& message) {
  std::string act = message.act.substr(0, 256);
  if (forbiddenActs_.size() >= kMostForbiddenActs && forbiddenActs_.count(act) == 0) act = "others";
  uint64_t& times = forbiddenActs_[act];
  // Said once a life: a model may try it in every call.
  if (times == 0) events_.forbidden(act, message.times);
  times += message.times;
}

void Worker::becomeReady() {
  stage_ = Stage::kReady;
  deadline_.cancel();
  events_.ready();
}

void Worker::controlOver(const std::string& reason) {
  if (!reason.empty()) return lose("it broke the protocol: " + reason);
  // While it is being forked its end of the socket may have gone with a zygote that died.
  if (stage_ == Stage::kForking) {
    controlOver_ = reason;
    return;
  }
  if (stage_ == Stage::kDying) return;
  stop();
  // Its own exit status is on its way, unless it only closed the socket.
  deadline_.setAfter(kTimeToEnd, [this] {
    blame("it closed its control socket and lived on");
    process_->kill();
  });
  events_.lost();
}

void Worker::lose(const std::string& reason) {
  if (stage_ == Stage::kDying) return;
  blame(reason);
  kill();
  events_.lost();
}

void Worker::blame(const std::string& reason) {
  if (cause_.empty()) cause_ = reason;
}

void Worker::goneSoon() {
  services_.loop.post([self = std::weak_ptr(self_)] {
    if (const auto alive = self.lock()) (*alive)->events_.gone(std::nullopt);
  });
}

void Worker::expectWithinTimeout(Timer& timer, const char* what) {
  timer.setAfter(services_.options.workerTimeout, [this, what] {
    lose("it took longer than " + std::to_string(services_.options.workerTimeout.count()) + " ms " +
         what + " (ISOPOOL_WORKER_TIMEOUT)");
  });
}

}  // namespace isopool::supervisor
