// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/connected_workers.h"

#include <signal.h>

#include <algorithm>
#include <new>
#include <utility>

#include "client/control/worker_introduction.h"
#include "client/transport/unreturned_loans.h"
#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"
#include "ipc/worker_exit.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

using std::chrono::milliseconds;

// The kernel kills the workers of a dead supervisor in milliseconds.
constexpr milliseconds kEndPatience(1000);

}  // namespace

ConnectedWorkers::ConnectedWorkers(Rules rules, std::shared_ptr<ControlWriter> writer,
                                   std::shared_ptr<UnawaitedWatch> watch)
    : rules_(std::move(rules)), writer_(std::move(writer)), watch_(std::move(watch)) {}

void ConnectedWorkers::handle(ipc::Frame& frame) {
  switch (frame.type) {
    case ipc::MessageType::kIntroduceWorker:
      return introduce(ipc::decodeMessage<ipc::IntroduceWorker>(frame), frame);
    case ipc::MessageType::kAssignWorker:
      return assign(ipc::decodeMessage<ipc::AssignWorker>(frame));
    case ipc::MessageType::kWorkerDied:
      return died(ipc::decodeMessage<ipc::WorkerDied>(frame));
    case ipc::MessageType::kSlotQuarantined:
      return quarantined(ipc::decodeMessage<ipc::SlotQuarantined>(frame));
    case ipc::MessageType::kGrantOutputSegment:
      return addSegment(ipc::decodeMessage<ipc::GrantOutputSegment>(frame), frame);
    case ipc::MessageType::kUnmapOutputSegment:
      return removeSegment(ipc::decodeMessage<ipc::UnmapOutputSegment>(frame));
    case ipc::MessageType::kRetireWorker:
      return retire(ipc::decodeMessage<ipc::RetireWorker>(frame).epoch);
    case ipc::MessageType::kChannelClosed:
      return closed(ipc::decodeMessage<ipc::ChannelClosed>(frame).epoch);
    case ipc::MessageType::kCallTimeOver:
      return callTimeOver(ipc::decodeMessage<ipc::CallTimeOver>(frame));
    case ipc::MessageType::kDrain:
      return drain(ipc::decodeMessage<ipc::Drain>(frame).text);
    case ipc::MessageType::kPauseCalls:
      return pause(ipc::decodeMessage<ipc::PauseCalls>(frame).paused);
    default:
      throw ipc::ProtocolError("a message type that clients do not receive");
  }
}

void ConnectedWorkers::introduce(const ipc::IntroduceWorker& message, ipc::Frame& frame) {
  releaseReturned();
  const auto channel = linkTo(message, frame, welcome_.livenessWordWorks, rules_.connection);
  channel->onDeath([writer = writer_, epoch = message.epoch](const auto& reason, bool overdue) {
    writer->send(ipc::ReportDeath{epoch, reason, overdue});
    ipc::reachCrashPoint(ipc::CrashPoint::kDeathReported);
  });
  channel->limitCleanup(rules_.cleanupLimit, watch_);
  if (welcome_.shared) {
    channel->share({[writer = writer_, epoch = message.epoch](const std::string& reason) {
                      writer->send(ipc::ReportDeath{epoch, reason, /*overdue=*/false});
                    },
                    [writer = writer_, epoch = message.epoch](uint64_t sequence) {
                      writer->send(ipc::ReportOverdue{epoch, sequence});
                    },
                    welcome_.client});
  }
  {
    base::MutexLock lock(mutex_);
    channels_[message.epoch] = channel;
    if (refusing_) channel->refuseRequests(drainText_);
    if (paused_) channel->pauseRequests(true);
  }
  // The worker handles what is in the ring when it first looks at it before any call.
  extendPath(*channel);
  {
    // Under one lock: what is unloaded later is then unloaded after this message, on which the
    // supervisor announces it to the worker, and after the spare's notification that refers to it.
    base::MutexLock lock(mutex_);
    if (rules_.spare == SpareWorker::kHasObjects && !anotherPreparesLocked(*channel)) {
      defineObjectsLocked(*channel);
    }
    writer_->send(ipc::ChannelMapped{message.epoch});
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelMappedSent);
  for (const auto& pool : livingPools()) pool->workerIntroduced(channel);
}

void ConnectedWorkers::extendPath(WorkerLink& channel) const {
  RequestDraft& paths = requestDraft();
  paths.writer.packer().pack_array(static_cast<uint32_t>(rules_.pythonPaths.size()));
  for (const std::string& path : rules_.pythonPaths) paths.writer.packer().pack(path);
  channel.notify(ipc::Operation::kExtendPath, paths);
}

// One shared worker at a time makes objects before a call needs them: it serves no other program
// meanwhile, and several that were replaced at once would all be occupied.
bool ConnectedWorkers::anotherPreparesLocked(const WorkerLink& channel) const {
  if (!welcome_.shared) return false;
  return std::any_of(channels_.begin(), channels_.end(), [&](const auto& entry) {
    const WorkerLink& other = *entry.second;
    return &other != &channel && !other.dead() && other.makesObjectsAhead();
  });
}

void ConnectedWorkers::defineObjectsLocked(WorkerLink& channel) {
  for (const auto& [object, definition] : definitions_) {
    RequestDraft& draft = requestDraft();
    draftDefinition(draft, definition);
    channel.notify(definition.operation, draft);
  }
}

void ConnectedWorkers::assign(const ipc::AssignWorker& message) {
  const auto channel = channelOf(message.epoch);
  const auto pool = poolOf(message.pool);
  if (!channel || !pool) return;
  {
    // This process may have left the worker before.
    base::MutexLock lock(mutex_);
    retired_.erase(message.epoch);
  }
  // One shared worker may serve several slots: the worker itself gets the number of the first one.
  if (!channel->place()) {
    channel->assume(message.pool, message.slot);
    RequestDraft& draft = requestDraft();
    draft.writer.packer().pack_array(1).pack(message.slot);
    channel->notify(ipc::Operation::kAssumeSlot, draft);
  }
  pool->workerAssigned(message.slot, channel);
  ipc::reachCrashPoint(ipc::CrashPoint::kSlotTakenOver);
}

void ConnectedWorkers::quarantined(const ipc::SlotQuarantined& message) {
  if (auto pool = poolOf(message.pool)) pool->slotQuarantined(message.slot, message.text);
}

void ConnectedWorkers::addSegment(const ipc::GrantOutputSegment& message, const ipc::Frame& frame) {
  const auto channel = channelOf(message.epoch);
  if (!channel || frame.descriptors.empty()) return;
  const base::Fd& object = frame.descriptors.front();
  if (!ipc::memoryObjectHas(object, message.bytes, ipc::Seal::kFixedSize)) {
    throw ipc::ProtocolError("the size of an output segment is not sealed");
  }
  channel->memory().addSegment(
      base::SegmentId(message.segment),
      ipc::mapShared(object, 0, message.bytes, ipc::Access::kReadWrite, ipc::Prefault::kYes));
  ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentMapped);
}

void ConnectedWorkers::removeSegment(const ipc::UnmapOutputSegment& message) {
  if (const auto channel = channelOf(message.epoch)) {
    channel->memory().removeSegment(base::SegmentId(message.segment));
  }
  writer_->send(ipc::OutputSegmentUnmapped{message.epoch, message.segment});
  ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentUnmapped);
}

void ConnectedWorkers::died(const ipc::WorkerDied& message) {
  const auto channel = channelOf(message.epoch);
  if (!channel) return;
  channel->reaped(message.signal, message.exitCode);
  ipc::reachCrashPoint(ipc::CrashPoint::kDeathTold);
  {
    base::MutexLock lock(mutex_);
    channels_.erase(message.epoch);
    if (retired_.erase(message.epoch) != 0) return;
  }
  changed_.notify_all();
  const auto place = channel->place();
  const auto pool = place ? poolOf(place->pool) : nullptr;
  // Without a pool: the worker died because its pool was closed, or as a spare.
  if (!pool) return;
  const bool served = message.signal == 0 && message.exitCode == ipc::kServedWorkerExit;
  pool->workerDied(place->slot, channel->death(), served || channel->endedByCaller());
}

// The worker lives on, but its channel to this process is closed.
void ConnectedWorkers::closed(uint64_t epoch) {
  const auto channel = channelOf(epoch);
  if (!channel) return;
  channel->detached();
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelLeft);
  {
    base::MutexLock lock(mutex_);
    channels_.erase(epoch);
    retired_.erase(epoch);
  }
  changed_.notify_all();
}

void ConnectedWorkers::retire(uint64_t epoch) {
  const auto channel = channelOf(epoch);
  if (channel) {
    base::MutexLock lock(mutex_);
    retired_.insert(epoch);
    // Two references are channels_' and this function's; a call, session or Obj has any other one.
    // The slots have another worker already. The supervisor asks again.
    if (channel.use_count() > 2) return channel->retire();
  }
  writer_->send(ipc::WorkerReleased{epoch});
  ipc::reachCrashPoint(ipc::CrashPoint::kWorkerReleaseSent);
}

void ConnectedWorkers::callTimeOver(const ipc::CallTimeOver& message) {
  if (const auto channel = channelOf(message.epoch)) {
    channel->callTimeOver(message.sequence, message.text);
  }
}

void ConnectedWorkers::drain(const std::string& text) {
  std::shared_ptr<PoolEvents> pool;
  {
    base::MutexLock lock(mutex_);
    drainText_ = text;
    // With a shared supervisor a connection has one pool.
    if (!pools_.empty()) pool = pools_.begin()->second.lock();
  }
  if (!pool || pool->drain(text)) drained();
}

void ConnectedWorkers::pause(bool paused) {
  {
    base::MutexLock lock(mutex_);
    paused_ = paused;
    for (const auto& [epoch, channel] : channels_) channel->pauseRequests(paused);
  }
  logToPools(LogLevel::kWarning,
             paused ? "an operator of the shared supervisor has paused this program: its calls wait"
                    : "an operator's pause is over: calls go on");
}

void ConnectedWorkers::drained() noexcept {
  try {
    {
      base::MutexLock lock(mutex_);
      refusing_ = true;
      for (const auto& [epoch, channel] : channels_) channel->refuseRequests(drainText_);
    }
    writer_->send(ipc::AcknowledgeDrain{});
    ipc::reachCrashPoint(ipc::CrashPoint::kDrainAcknowledged);
  } catch (const std::exception&) {
    // The supervisor then waits until its own time limit and ends.
  }
}

std::shared_ptr<WorkerLink> ConnectedWorkers::channelOf(uint64_t epoch) {
  base::MutexLock lock(mutex_);
  const auto entry = channels_.find(epoch);
  return entry == channels_.end() ? nullptr : entry->second;
}

std::shared_ptr<PoolEvents> ConnectedWorkers::poolOf(uint32_t pool) {
  base::MutexLock lock(mutex_);
  const auto entry = pools_.find(pool);
  return entry == pools_.end() ? nullptr : entry->second.lock();
}

std::vector<std::shared_ptr<PoolEvents>> ConnectedWorkers::livingPools() {
  std::vector<std::shared_ptr<PoolEvents>> pools;
  base::MutexLock lock(mutex_);
  for (const auto& [id, weak] : pools_) {
    if (auto pool = weak.lock()) pools.push_back(std::move(pool));
  }
  return pools;
}

void ConnectedWorkers::reportCalls() {
  for (const auto& pool : livingPools()) pool->reportCalls();
}

void ConnectedWorkers::logToPools(LogLevel level, const std::string& text) {
  bool isLogged = false;
  for (const auto& pool : livingPools()) {
    if (pool->eventLog().isPrograms() && std::exchange(isLogged, true)) continue;
    pool->eventLog().write(level, [&] { return text; });
  }
}

void ConnectedWorkers::logLine(const SupervisorLog::Line& line) {
  const auto makeText = [&] { return line.text; };
  if (const auto pool = line.pool ? poolOf(*line.pool) : nullptr) {
    pool->eventLog().write(line.level, makeText);
  } else if (livingPools().empty()) {
    rules_.log.write(line.level, makeText);
  } else {
    logToPools(line.level, line.text);
  }
}

std::vector<std::shared_ptr<WorkerLink>> ConnectedWorkers::spares() const {
  std::vector<std::shared_ptr<WorkerLink>> spares;
  base::MutexLock lock(mutex_);
  for (const auto& [epoch, channel] : channels_) {
    if (!channel->place() && !channel->dead()) spares.push_back(channel);
  }
  return spares;
}

base::PoolId ConnectedWorkers::openPool(uint32_t workers, std::weak_ptr<PoolEvents> events) {
  uint32_t id = 0;
  {
    base::MutexLock lock(mutex_);
    if (!lostReason_.empty()) throw SupervisorLost(lostReason_);
    id = nextPool_++;
    pools_[id] = std::move(events);
  }
  writer_->send(ipc::OpenPool{id, workers});
  ipc::reachCrashPoint(ipc::CrashPoint::kPoolOpened);
  return base::PoolId(id);
}

void ConnectedWorkers::closePool(base::PoolId pool) {
  {
    base::MutexLock lock(mutex_);
    pools_.erase(pool.value);
  }
  writer_->send(ipc::ClosePool{pool.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kPoolClosed);
}

void ConnectedWorkers::addDefinition(const ObjectDefinition& definition) {
  base::MutexLock lock(mutex_);
  definitions_[definition.object] = definition;
}

void ConnectedWorkers::removeDefinition(uint64_t object) {
  std::vector<std::shared_ptr<WorkerLink>> holders;
  {
    base::MutexLock lock(mutex_);
    definitions_.erase(object);
    holders.reserve(channels_.size());
    for (const auto& [epoch, channel] : channels_) holders.push_back(channel);
  }
  for (const auto& channel : holders) channel->forgetObject(object);
}

std::string ConnectedWorkers::lostReason() const {
  base::MutexLock lock(mutex_);
  return lostReason_;
}

bool ConnectedWorkers::lost() const noexcept {
  base::MutexLock lock(mutex_);
  return !lostReason_.empty();
}

void ConnectedWorkers::lookAtUnawaitedWork() {
  watch_->run([this] {
    base::MutexLock lock(mutex_);
    bool left = false;
    for (const auto& [epoch, channel] : channels_) {
      try {
        if (channel->lookAtUnawaitedWork()) left = true;
      } catch (const std::bad_alloc&) {
        left = true;  // to be checked again
      }
    }
    return left;
  });
}

void ConnectedWorkers::awaitLoansBack(milliseconds patience) {
  base::MutexLock lock(mutex_);
  changed_.wait_for(lock, patience, [this]() ISOPOOL_REQUIRES(mutex_) {
    return !lostReason_.empty() ||
           std::none_of(channels_.begin(), channels_.end(),
                        [](const auto& entry) { return entry.second->hasLoans(); });
  });
}

void ConnectedWorkers::lose(const std::string& reason) {
  std::vector<std::shared_ptr<WorkerLink>> channels;
  // The first reason holds: a supervisor that reports why it ends a connection then closes it.
  std::string lostBy;
  bool wasLost = false;
  {
    base::MutexLock lock(mutex_);
    if (lostReason_.empty()) lostReason_ = reason;
    lostBy = lostReason_;
    wasLost = lostBy != reason;
    for (auto& [epoch, channel] : channels_) channels.push_back(channel);
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorLossSeen);
  changed_.notify_all();
  for (const auto& pool : livingPools()) pool->supervisorLost(rules_.connection, lostBy);
  // The end of a connection that was lost before is not an event: its pools may have another one.
  if (!wasLost) logToPools(LogLevel::kError, lostBy);
  // The kernel kills the workers together with their supervisor: waits below until none of them can
  // write any more.
  for (const auto& channel : channels) {
    channel->loseSupervisor(lostBy);
    if (!welcome_.shared) channel->kill(lostBy);
    channel->markDead();
  }
  {
    // Not earlier: if there was no memory above, this function is called again and needs them.
    base::MutexLock lock(mutex_);
    channels_.clear();
  }
  const auto giveUp = Clock::now() + kEndPatience;
  for (const auto& channel : channels) {
    const auto left = std::chrono::duration_cast<milliseconds>(giveUp - Clock::now());
    if (welcome_.shared && !channel->hasLoans()) continue;
    if (channel->processGone(std::max(left, milliseconds(0)))) {
      channel->reaped(SIGKILL, 0);
    } else {
      keepUntilReturned(channel);
    }
  }
}

}  // namespace isopool::client
