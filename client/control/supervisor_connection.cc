// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/supervisor_connection.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "base/await_readable.h"
#include "base/blocked_signals.h"
#include "base/pidfd.h"
#include "base/procfs.h"
#include "base/standard_streams.h"
#include "base/system_call.h"
#include "client/control/greeting.h"
#include "client/control/worker_introduction.h"
#include "client/program/environment_setting.h"
#include "client/program/event_log.h"
#include "client/program/process_fork.h"
#include "client/transport/death_text.h"
#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

namespace isopool::client {

using State = ipc::SendQueue::State;

namespace {

using std::chrono::milliseconds;

// The supervisor kills its processes and exits in milliseconds.
constexpr milliseconds kEndPatience(1000);

// Between two checks of work that no thread waits for.
constexpr milliseconds kBetweenLooks(100);

constexpr const char* kUnread =
    "the supervisor does not read its messages, and the queue of messages to it is full: make a "
    "new manager";
constexpr const char* kOutOfFiles =
    "a message to the supervisor can't be queued: this program has reached its limit of open "
    "files (ulimit -n); make a new manager";
constexpr const char* kDescriptorsAwaited =
    "messages of the supervisor are not read, and dead workers are not replaced, until this "
    "program closes files: it has reached its limit of open files (ulimit -n)";
// Between two checks whether the process has free descriptors for the supervisor's messages again.
constexpr milliseconds kOutOfDescriptors(100);
constexpr const char* kSupervisorGone =
    "the supervisor is gone, and its workers with it: make a new manager";

uint64_t nextNumber() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

bool waitUntilGone(const base::Fd& pidfd, milliseconds patience) {
  return pidfd.valid() && base::awaitReadable(pidfd.get(), patience);
}

}  // namespace

std::shared_ptr<SupervisorConnection> SupervisorConnection::open(
    std::vector<std::string> pythonPaths, SpareWorker spare, SupervisorProcess process,
    const std::string& place) {
  std::shared_ptr<SupervisorConnection> connection(
      new SupervisorConnection(std::move(pythonPaths), spare, std::move(process)), End());
  connection->begin(place);
  return connection;
}

void SupervisorConnection::begin(const std::string& place) {
  Greeting greeting = greetSupervisor(socket_, *writer_, place, noKill_);
  welcome_ = std::move(greeting.welcome);
  supervisor_ = std::move(greeting.supervisor);
  if (welcome_.callLimit != 0) callLimit_ = std::make_shared<CallLimit>(welcome_.callLimit);
  InputArena::instance().addAudience(*this);
  hearsOfInputs_ = true;
  const base::BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

SupervisorConnection::SupervisorConnection(std::vector<std::string> pythonPaths, SpareWorker spare,
                                           SupervisorProcess process)
    : number_(nextNumber()),
      generation_(client::forkGeneration()),
      noKill_(switchSetting("ISOPOOL_NO_KILL")),
      cleanupLimit_(noKill_ ? milliseconds(0) : timeSetting("ISOPOOL_CLEANUP_TIMEOUT")),
      pythonPaths_(std::move(pythonPaths)),
      spare_(spare),
      lifeline_(std::move(process.lifeline)),
      guardianGroup_(process.guardianGroup),
      socket_(std::move(process.control)),
      wake_(base::awayFromStandardStreams(
          base::Fd(base::checkSystemCall(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")))),
      writer_(std::make_shared<ControlWriter>(socket_, wake_.get())),
      watch_(std::make_shared<UnawaitedWatch>(writer_)),
      packages_(writer_) {}

void SupervisorConnection::End::operator()(SupervisorConnection* connection) const {
  if (connection->generation_ == client::forkGeneration()) {
    delete connection;
  } else {
    // Closes this process's copies of the descriptors; the parent's stay open.
    connection->socket_.close();
    connection->lifeline_.close();
    connection->wake_.close();
    connection->supervisor_.close();
  }
}

SupervisorConnection::~SupervisorConnection() {
  // If memory was short, there may be no arena, and none can be made here.
  if (hearsOfInputs_) InputArena::instance().removeAudience(*this);
  if (shared()) awaitLoansBack();
  const uint64_t one = 1;
  if (thread_.joinable()) {
    stopping_.store(true, std::memory_order_release);
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  writer_->close();
  // Closing alone would not end the connection while a forked child has a copy of the socket.
  ::shutdown(socket_.fd(), SHUT_RDWR);
  socket_.close();
  if (!shared()) {
    waitUntilGone(supervisor_, kEndPatience);
    lifeline_.close();  // the kernel then kills a supervisor that is stopped
    reapGuardian(guardianGroup_);
  }
  try {
    lose("its manager is gone");
  } catch (const std::bad_alloc&) {
    // No thread makes calls any more; what was lent comes back when each channel is destroyed.
  }
}

// A shared worker lives on, and returns what was lent to it between two calls, so that a long call
// of another program delays it. After kEndPatience this thread stops waiting.
void SupervisorConnection::awaitLoansBack() {
  base::MutexLock lock(mutex_);
  changed_.wait_for(lock, kEndPatience, [this]() ISOPOOL_REQUIRES(mutex_) {
    return !lostReason_.empty() ||
           std::none_of(channels_.begin(), channels_.end(),
                        [](const auto& entry) { return entry.second->hasLoans(); });
  });
}

void SupervisorConnection::run() {
  std::array<pollfd, 2> watched{pollfd{socket_.fd(), POLLIN, 0}, pollfd{wake_.get(), POLLIN, 0}};
  State queue = State::kEmpty;
  std::optional<Clock::time_point> look;  // when to check work that no thread waits for
  bool lacksDescriptors = false;
  for (;;) {
    // Not immediately: most of this work takes microseconds.
    if (!look && watch_->on()) look = Clock::now() + kBetweenLooks;
    int timeout = -1;
    if (queue == State::kCrowded) {
      timeout = static_cast<int>(ipc::SendQueue::kCrowdedRetry.count());
    } else if (look) {
      const auto left = std::chrono::ceil<milliseconds>(*look - Clock::now());
      timeout = static_cast<int>(std::max(left, milliseconds(0)).count());
    } else if (lacksDescriptors) {
      timeout = static_cast<int>(kOutOfDescriptors.count());
    }
    // Without free descriptors only the end of the connection matters, which poll() always reports.
    watched[0].events = lacksDescriptors ? 0 : POLLIN;
    if (queue == State::kFull) watched[0].events |= POLLOUT;
    if (::poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR) return;
    uint64_t woken = 0;
    if ((watched[1].revents & POLLIN) != 0) (void)!::read(wake_.get(), &woken, sizeof woken);
    if (stopping_.load(std::memory_order_acquire)) return;
    if (look && Clock::now() >= *look) {
      look.reset();
      lookAtUnawaitedWork();
    }
    queue = writer_->flush();
    if (queue == State::kOverflow) return loseOnceThereIsMemory(kUnread, "");
    if (queue == State::kOutOfFiles) return loseOnceThereIsMemory(kOutOfFiles, "");
    if (!lacksDescriptors && (watched[0].revents & ~POLLOUT) == 0) continue;
    try {
      if (!socket_.descriptorsFit()) {
        if ((watched[0].revents & (POLLHUP | POLLERR)) != 0) return lose(kSupervisorGone);
        if (!std::exchange(lacksDescriptors, true)) {
          logEvent(LogLevel::kWarning, [] { return kDescriptorsAwaited; });
        }
        continue;
      }
      lacksDescriptors = false;
      const auto received = socket_.receive();
      while (auto frame = socket_.next()) handle(*frame);
      if (received == ipc::ReceiveResult::kPeerGone) {
        return lose(kSupervisorGone);
      }
    } catch (const base::SystemCallError& error) {
      return loseOnceThereIsMemory("this program can't process a message of its supervisor: ",
                                   error.what());
    } catch (const std::bad_alloc& error) {
      return loseOnceThereIsMemory("no memory for a message of the supervisor: ", error.what());
    } catch (const std::exception& error) {
      return loseOnceThereIsMemory("the supervisor sent an invalid message: ", error.what());
    }
  }
}

void SupervisorConnection::lookAtUnawaitedWork() {
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

// Calls lose() until its allocations succeed or the connection is to end.
void SupervisorConnection::loseOnceThereIsMemory(const char* what, const char* why) {
  constexpr int kPause = 10;  // ms
  do {
    try {
      return lose(std::string(what) + why);
    } catch (const std::bad_alloc&) {
    }
    ::poll(nullptr, 0, kPause);
  } while (!stopping_.load(std::memory_order_acquire));
}

void SupervisorConnection::handle(ipc::Frame& frame) {
  switch (frame.type) {
    case ipc::MessageType::kIntroduceWorker:
      return introduce(ipc::decodeMessage<ipc::IntroduceWorker>(frame), frame);
    case ipc::MessageType::kAssignWorker:
      return assign(ipc::decodeMessage<ipc::AssignWorker>(frame));
    case ipc::MessageType::kWorkerDied:
      return died(ipc::decodeMessage<ipc::WorkerDied>(frame));
    case ipc::MessageType::kSlotQuarantined: {
      const auto message = ipc::decodeMessage<ipc::SlotQuarantined>(frame);
      logEvent(LogLevel::kError, [&] { return message.text; });
      if (auto pool = poolOf(message.pool)) pool->slotQuarantined(message.slot, message.text);
      return;
    }
    case ipc::MessageType::kGrantOutputSegment: {
      const auto message = ipc::decodeMessage<ipc::GrantOutputSegment>(frame);
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
      return;
    }
    case ipc::MessageType::kFailure:
      return lose(ipc::decodeMessage<ipc::Failure>(frame).text);
    case ipc::MessageType::kStatistics:
      return;
    case ipc::MessageType::kPackageHeld:
      return packages_.answered(ipc::decodeMessage<ipc::PackageHeld>(frame), frame);
    case ipc::MessageType::kRetireWorker:
      return retire(ipc::decodeMessage<ipc::RetireWorker>(frame).epoch);
    case ipc::MessageType::kChannelClosed:
      return closed(ipc::decodeMessage<ipc::ChannelClosed>(frame).epoch);
    case ipc::MessageType::kCallTimeOver: {
      const auto message = ipc::decodeMessage<ipc::CallTimeOver>(frame);
      if (const auto channel = channelOf(message.epoch)) {
        channel->callTimeOver(message.sequence, message.text);
      }
      return;
    }
    case ipc::MessageType::kDrain:
      return drain(ipc::decodeMessage<ipc::Drain>(frame).text);
    default:
      throw ipc::ProtocolError("a message type that clients do not receive");
  }
}

void SupervisorConnection::introduce(const ipc::IntroduceWorker& message, ipc::Frame& frame) {
  const auto channel = linkTo(message, frame, welcome_.livenessWordWorks, number_);
  channel->onDeath([writer = writer_, epoch = message.epoch](const std::string& reason) {
    writer->send(ipc::ReportDeath{epoch, reason});
    ipc::reachCrashPoint(ipc::CrashPoint::kDeathReported);
  });
  if (cleanupLimit_.count() != 0) channel->limitCleanup(cleanupLimit_, watch_);
  if (shared()) {
    channel->share({[writer = writer_, epoch = message.epoch](const std::string& reason) {
                      writer->send(ipc::ReportDeath{epoch, reason});
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
  }
  // The worker handles what is in the ring when it first looks at it before any call.
  extendPath(*channel);
  {
    // Under one lock: what is unloaded later is then unloaded after this message, on which the
    // supervisor announces it to the worker, and after the spare's notification that refers to it.
    base::MutexLock lock(mutex_);
    if (spare_ == SpareWorker::kHasObjects) defineObjectsLocked(*channel);
    writer_->send(ipc::ChannelMapped{message.epoch});
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelMappedSent);
}

void SupervisorConnection::extendPath(WorkerLink& channel) {
  RequestDraft& paths = requestDraft();
  paths.writer.packer().pack_array(static_cast<uint32_t>(pythonPaths_.size()));
  for (const std::string& path : pythonPaths_) paths.writer.packer().pack(path);
  channel.notify(ipc::Operation::kExtendPath, paths);
}

void SupervisorConnection::defineObjectsLocked(WorkerLink& channel) {
  for (const auto& [object, definition] : definitions_) {
    RequestDraft& draft = requestDraft();
    draftDefinition(draft, definition);
    channel.notify(definition.operation, draft);
  }
}

void SupervisorConnection::assign(const ipc::AssignWorker& message) {
  const auto channel = channelOf(message.epoch);
  const auto pool = poolOf(message.pool);
  if (!channel || !pool) return;
  // One shared worker may serve several slots: the worker itself gets the number of the first one.
  if (!channel->place()) {
    channel->assume(message.pool, message.slot);
    RequestDraft& draft = requestDraft();
    draft.writer.packer().pack_array(1).pack(message.slot);
    channel->notify(ipc::Operation::kAssumeSlot, draft);
  }
  pool->workerAssigned(message.slot, channel);
  ipc::reachCrashPoint(ipc::CrashPoint::kSlotTakenOver);
  logEvent(LogLevel::kDebug, [&] { return channel->name() + " serves"; });
}

void SupervisorConnection::died(const ipc::WorkerDied& message) {
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
  const WorkerLost::Death death = channel->death();
  pool->workerDied(place->slot, death);
  logEvent(LogLevel::kWarning, [&] {
    return deathText(death) + (death.crashLog.empty() ? "" : "; its crash log:\n" + death.crashLog);
  });
}

// The worker lives on, but its channel to this process is closed.
void SupervisorConnection::closed(uint64_t epoch) {
  const auto channel = channelOf(epoch);
  if (!channel) return;
  channel->detached();
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelLeft);
  {
    base::MutexLock lock(mutex_);
    channels_.erase(epoch);
  }
  changed_.notify_all();
}

void SupervisorConnection::retire(uint64_t epoch) {
  const auto channel = channelOf(epoch);
  if (channel) {
    base::MutexLock lock(mutex_);
    retired_.insert(epoch);
    // Two references are channels_' and this function's; a call, session or Obj has any other one.
    // The slots have another worker already. The supervisor asks again.
    if (channel.use_count() > 2) return;
  }
  writer_->send(ipc::WorkerReleased{epoch});
  ipc::reachCrashPoint(ipc::CrashPoint::kWorkerReleaseSent);
}

void SupervisorConnection::drain(const std::string& text) {
  std::shared_ptr<PoolEvents> pool;
  {
    base::MutexLock lock(mutex_);
    drainText_ = text;
    // With a shared supervisor a connection has one pool.
    if (!pools_.empty()) pool = pools_.begin()->second.lock();
  }
  if (!pool || pool->drain(text)) drained();
}

void SupervisorConnection::drained() noexcept {
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

void SupervisorConnection::lose(const std::string& reason) {
  std::vector<std::shared_ptr<WorkerLink>> channels;
  std::vector<std::shared_ptr<PoolEvents>> pools;
  {
    base::MutexLock lock(mutex_);
    if (lostReason_.empty()) lostReason_ = reason;
    for (auto& [epoch, channel] : channels_) channels.push_back(channel);
    for (auto& [id, weak] : pools_) {
      if (auto pool = weak.lock()) pools.push_back(pool);
    }
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorLossSeen);
  changed_.notify_all();
  packages_.supervisorLost(reason);
  for (const auto& pool : pools) pool->supervisorLost(reason);
  if (!pools.empty()) logEvent(LogLevel::kError, [&] { return reason; });
  // The kernel kills the workers together with their supervisor: waits below until none of them can
  // write any more.
  for (const auto& channel : channels) {
    if (!shared()) channel->kill(reason);
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
    // A worker whose end can't be seen keeps what was lent to it until its channel is destroyed.
    if (shared() && !channel->hasLoans()) continue;
    if (channel->processGone(std::max(left, milliseconds(0)))) channel->reaped(SIGKILL, 0);
  }
}

std::shared_ptr<WorkerLink> SupervisorConnection::channelOf(uint64_t epoch) {
  base::MutexLock lock(mutex_);
  const auto entry = channels_.find(epoch);
  return entry == channels_.end() ? nullptr : entry->second;
}

std::shared_ptr<PoolEvents> SupervisorConnection::poolOf(uint32_t pool) {
  base::MutexLock lock(mutex_);
  const auto entry = pools_.find(pool);
  return entry == pools_.end() ? nullptr : entry->second.lock();
}

base::PoolId SupervisorConnection::openPool(uint32_t workers, std::weak_ptr<PoolEvents> events) {
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

void SupervisorConnection::closePool(base::PoolId pool) {
  {
    base::MutexLock lock(mutex_);
    pools_.erase(pool.value);
  }
  writer_->send(ipc::ClosePool{pool.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kPoolClosed);
}

void SupervisorConnection::addDefinition(const ObjectDefinition& definition) {
  base::MutexLock lock(mutex_);
  definitions_[definition.object] = definition;
}

void SupervisorConnection::removeDefinition(uint64_t object) {
  std::vector<std::shared_ptr<WorkerLink>> holders;
  {
    base::MutexLock lock(mutex_);
    definitions_.erase(object);
    holders.reserve(channels_.size());
    for (const auto& [epoch, channel] : channels_) holders.push_back(channel);
  }
  for (const auto& channel : holders) {
    // Not the thread's own draft: it is destroyed already when a static object's destructor runs.
    RequestDraft draft;
    draftForgetting(draft, object);
    channel->notify(ipc::Operation::kForgetObject, draft);
  }
}

void SupervisorConnection::checkSupervisorLives(bool started) const {
  // The kernel kills the workers while the supervisor exits, before its pidfd shows that. The order
  // matters: the process number can be another process's only after the supervisor was reaped, and
  // then the pidfd shows its end. A process that this /proc does not show has no flags.
  constexpr unsigned kExiting = 0x4;  // PF_EXITING
  const pid_t number = base::processOf(supervisor_).value_or(0);
  const bool exiting = number != 0 && (base::statusOf(number).flags & kExiting) != 0;
  if (exiting || waitUntilGone(supervisor_, milliseconds(0))) {
    throw SupervisorLost(kSupervisorGone, started);
  }
}

std::string SupervisorConnection::lostReason() const {
  base::MutexLock lock(mutex_);
  return lostReason_;
}

void SupervisorConnection::segmentAdded(base::SegmentId id, const base::Fd& object, size_t bytes) {
  writer_->send(ipc::DeclareInputSegment{id.value, bytes}, {object.get()});
  ipc::reachCrashPoint(ipc::CrashPoint::kInputSegmentDeclared);
}

}  // namespace isopool::client
