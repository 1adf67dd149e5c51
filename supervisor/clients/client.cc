// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/client.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "base/system_call.h"
#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"
#include "supervisor/clients/report.h"
#include "supervisor/pool/printable.h"

namespace isopool::supervisor {

using base::Epoch;
using base::PoolId;
using ipc::MessageType;
using ipc::ProtocolError;

namespace {

constexpr uint32_t kMaxWorkersPerPool = 4096;
constexpr size_t kLongestProgramName = 64;
constexpr size_t kLongestReason = 256;

std::string range(uint32_t oldest, uint32_t newest) {
  return oldest == newest ? std::to_string(newest)
                          : std::to_string(oldest) + " to " + std::to_string(newest);
}

}  // namespace

Client::Client(Services& services, ClientId id, base::Fd socket, std::optional<Peer> peer,
               Events events)
    : services_(services),
      id_(id),
      peer_(peer),
      events_(std::move(events)),
      connection_(services.loop, std::move(socket),
                  Connection::Events{[this](ipc::Frame& frame) { handle(frame); },
                                     [this](const std::string& reason) { end(reason); }, nullptr}),
      handshake_(services.loop),
      attachedAt_(services.loop.now()),
      self_(this) {}

Client::Client(Services& services, ClientId id, base::Fd socket, Events events)
    : Client(services, id, std::move(socket), std::nullopt, std::move(events)) {
  ownGroup_ = std::make_unique<WorkerGroup>(services, "", WorkerGroup::Events{events_.reaped});
  group_ = ownGroup_.get();
  group_->join(*this);
}

Client::Client(Services& services, ClientId id, base::Fd socket, const Peer& peer, Events events)
    : Client(services, id, std::move(socket), std::optional(peer), std::move(events)) {
  program_ = printable(services.processes.programOf(peer.processId), kLongestProgramName);
  handshake_.setAfter(services.options.handshakeTimeout, [this] {
    refuse("it sent no Hello within " + std::to_string(services_.options.handshakeTimeout.count()) +
           " ms (ISOPOOL_HANDSHAKE_TIMEOUT)");
  });
}

Client::~Client() {
  if (group_ != nullptr) group_->forget(id_);
}

void Client::zygoteReady() {
  if (saidHello_ && !welcomed_) welcome();
}

void Client::onZygoteCrashLoop() {
  if (ownGroup_ != nullptr) ownGroup_->onZygoteCrashLoop();
}

void Client::refuse(const std::string& text) {
  if (over_) return;
  connection_.send(ipc::Failure{text});
  end(text);
}

void Client::drain(const std::string& text) {
  if (over_ || std::exchange(draining_, true)) return;
  if (welcomed_ && !isOperator()) connection_.send(ipc::Drain{text});
  ipc::reachCrashPoint(ipc::CrashPoint::kDrainSent);
}

bool Client::drained() const {
  if (over_ || isOperator() || !welcomed_ || group_ == nullptr) return true;
  if (!drainAcknowledged_) return false;
  const auto& workers = group_->workers();
  return std::none_of(workers.begin(), workers.end(),
                      [&](const auto& entry) { return entry.second->busyWith(id_); });
}

void Client::appendPids(std::vector<pid_t>& pids) const {
  if (ownGroup_ != nullptr) ownGroup_->appendPids(pids);
}

// ---- messages from the client -----------------------------------------------------------------

void Client::handle(ipc::Frame& frame) {
  if (over_) return;
  try {
    if (!saidHello_ && frame.type != MessageType::kHello) {
      throw ProtocolError("the first message is not Hello");
    }
    if (isOperator()) return handleOperator(frame);
    switch (frame.type) {
      case MessageType::kHello:
        return hello(frame);
      case MessageType::kOpenPool:
        return openPool(ipc::decodeMessage<ipc::OpenPool>(frame));
      case MessageType::kClosePool:
        return closePool(PoolId(ipc::decodeMessage<ipc::ClosePool>(frame).pool));
      case MessageType::kDeclareInputSegment:
        return declareInputSegment(frame);
      case MessageType::kLoadPackage:
        return loadPackage(frame);
      case MessageType::kConfirmPackage:
        return confirmPackage(ipc::decodeMessage<ipc::ConfirmPackage>(frame));
      case MessageType::kUnloadPackage:
        return unloadPackage(ipc::decodeMessage<ipc::UnloadPackage>(frame));
      case MessageType::kChannelMapped:
        return channelMapped(ipc::decodeMessage<ipc::ChannelMapped>(frame));
      case MessageType::kReportDeath:
        return reportDeath(ipc::decodeMessage<ipc::ReportDeath>(frame));
      case MessageType::kReportOverdue:
        return reportOverdue(ipc::decodeMessage<ipc::ReportOverdue>(frame));
      case MessageType::kWorkerReleased:
        if (group_ != nullptr) {
          group_->released(Epoch(ipc::decodeMessage<ipc::WorkerReleased>(frame).epoch), id_);
        }
        return;
      case MessageType::kAcknowledgeDrain:
        if (!draining_) throw ProtocolError("AcknowledgeDrain without Drain");
        drainAcknowledged_ = true;
        return;
      case MessageType::kRequestStatistics:
        return sendStatistics(ipc::decodeMessage<ipc::RequestStatistics>(frame).token);
      default:
        throw ProtocolError("unexpected message of type " +
                            std::to_string(static_cast<uint32_t>(frame.type)));
    }
  } catch (const ProtocolError& error) {
    refuse(std::string("the control connection broke the protocol: ") + error.what());
  }
}

void Client::handleOperator(const ipc::Frame& frame) {
  const uint64_t token = ipc::decodeMessage<ipc::RequestReport>(frame).token;
  ipc::Report report = events_.report();
  report.token = token;
  makeFit(report);
  connection_.send(report);
}

void Client::hello(ipc::Frame& frame) {
  if (saidHello_) throw ProtocolError("Hello a second time");
  const auto message = ipc::decodeMessage<ipc::Hello>(frame);
  const bool common = message.protocolVersion >= ipc::kOldestProtocolVersion &&
                      message.oldestProtocolVersion <= ipc::kProtocolVersion;
  const bool isProgram = message.role == static_cast<uint32_t>(ipc::ClientRole::kProgram);
  if (!common || (isProgram && message.layoutVersion != ipc::kLayoutVersion)) {
    return refuse("the client and isopoold are of different versions of isopool: protocol " +
                  range(std::min(message.oldestProtocolVersion, message.protocolVersion),
                        message.protocolVersion) +
                  " and " + range(ipc::kOldestProtocolVersion, ipc::kProtocolVersion) +
                  ", memory layout " + std::to_string(message.layoutVersion) + " and " +
                  std::to_string(ipc::kLayoutVersion));
  }
  if (!isProgram &&
      (!isShared() || message.role != static_cast<uint32_t>(ipc::ClientRole::kOperator))) {
    throw ProtocolError("Hello of an unknown role");
  }
  base::Fd pidfd = onlyDescriptor(frame);
  if (isShared()) {
    try {
      if (!services_.processes.isPidfdOf(pidfd, peer_->processId)) {
        throw ProtocolError("Hello with a descriptor that is not a pidfd of the client");
      }
    } catch (const base::SystemCallError& error) {
      return refuse(std::string("isopoold can't read the client's pidfd: ") + error.what());
    }
  }
  if (isProgram && isShared()) {
    const std::string refusal = events_.whyNoMorePrograms();
    if (!refusal.empty()) return refuse(refusal);
  }
  saidHello_ = true;
  handshake_.cancel();
  role_ = static_cast<ipc::ClientRole>(message.role);
  if (!message.program.empty()) program_ = printable(message.program, kLongestProgramName);
  pidfd_ = std::move(pidfd);
  deathWatch_.emplace(services_.loop, pidfd_.get());
  deathWatch_->onReadable([this] { end(""); });
  if (services_.zygote.readiness() || isOperator()) welcome();
}

void Client::welcome() {
  welcomed_ = true;
  ipc::Welcome welcome;
  welcome.processId = ::getpid();
  welcome.zygoteProcessId = services_.zygote.pid();
  if (const auto& zygote = services_.zygote.readiness()) {
    welcome.pythonVersion = zygote->pythonVersion;
    welcome.torchVersion = zygote->torchVersion;
    welcome.livenessWordWorks = zygote->livenessWordWorks;
  }
  welcome.shared = isShared();
  welcome.client = id_.value;
  welcome.callLimit = isShared() ? services_.options.limits.calls : 0;
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  connection_.send(welcome, {pidfd.get()});
  ipc::reachCrashPoint(ipc::CrashPoint::kClientWelcomed);
  if (!isShared() || isOperator()) return;
  base::log(base::LogLevel::kInfo, describe() + " is attached",
            {{"client", id_.value},
             {"program", program_},
             {"client_pid", peer_->processId},
             {"user", peer_->userId}});
}

void Client::openPool(const ipc::OpenPool& message) {
  const PoolId pool(message.pool);
  if (message.workers == 0 || message.workers > kMaxWorkersPerPool) {
    throw ProtocolError("OpenPool of " + std::to_string(message.workers) + " workers; 1 to " +
                        std::to_string(kMaxWorkersPerPool) + " are allowed");
  }
  if (!isShared()) {
    if (group_->hasPool(pool)) throw ProtocolError("OpenPool of a pool that is open");
    group_->openPool(pool, message.workers);
    return ipc::reachCrashPoint(ipc::CrashPoint::kPoolJoined);
  }
  if (group_ != nullptr) throw ProtocolError("OpenPool a second time on one connection");
  pool_ = pool;
  group_ = &events_.groupFor(ownClass());
  slotIndices_ = group_->leastUsedSlots(kSharedPool, message.workers);
  group_->join(*this);
  ipc::reachCrashPoint(ipc::CrashPoint::kPoolJoined);
}

void Client::closePool(PoolId pool) {
  if (!isShared()) return group_->closePool(pool);
  if (group_ == nullptr || pool != pool_) return;
  // The channels close one by one; a second pool would need a second connection.
  group_->leave(*this);
  slotIndices_.clear();
}

const ClientClass* Client::ownClass() const {
  for (const ClientClass& each : services_.options.classes) {
    if (each.userId && *each.userId != peer_->userId) continue;
    if (!each.program.empty() && each.program != program_) continue;
    return &each;
  }
  return nullptr;
}

void Client::channelMapped(const ipc::ChannelMapped& message) {
  Worker* worker = group_ != nullptr ? group_->find(Epoch(message.epoch)) : nullptr;
  // The worker may have died, or the client may have left its pool, since IntroduceWorker was sent.
  if (worker == nullptr || worker->stage() == Worker::Stage::kDying) return;
  const Attachment* attachment = worker->attachment(id_);
  if (attachment == nullptr && worker->wasIntroduced() && isShared()) return;
  if (attachment == nullptr || attachment->stage != Attachment::Stage::kIntroduced) {
    throw ProtocolError("ChannelMapped for a channel that was not offered");
  }
  if (!ipc::memoryObjectHas(attachment->memory.clientControl, ipc::kClientControlBytes,
                            ipc::Seal::kSingleWriter)) {
    throw ProtocolError("ChannelMapped before the control segment was sealed");
  }
  const ClientClass* its = isShared() ? ownClass() : nullptr;
  worker->attach(id_, its != nullptr ? its->share : 1,
                 isShared() ? services_.options.limits : ClientLimits{});
  // After attach(): a worker knows a client by its channel.
  for (const auto& [number, package] : packages_) {
    if (package.mapped) tell(*worker, number, package);
  }
  for (const auto& [number, segment] : inputSegments_) worker->mapSegment(id_, number, segment);
  ipc::reachCrashPoint(ipc::CrashPoint::kClientMemoryTold);
}

void Client::reportDeath(const ipc::ReportDeath& message) {
  if (group_ == nullptr) return;
  Worker* worker = group_->find(Epoch(message.epoch));
  if (worker == nullptr && !isShared()) {
    return group_->blameReaped(Epoch(message.epoch), printable(message.reason, kLongestReason));
  }
  const Attachment* attachment = worker != nullptr ? worker->attachment(id_) : nullptr;
  // A client whose channel is not mapped yet, or is being detached, can't judge the worker.
  if (attachment == nullptr || !attachment->listening()) return;
  const std::string reason = printable(message.reason, kLongestReason);
  if (!isShared()) return group_->loseWorker(*worker, reason);
  group_->workerReported(*worker, *this, reason);
}

void Client::reportOverdue(const ipc::ReportOverdue& message) {
  ++overdueCalls_;
  Worker* worker = group_ != nullptr ? group_->find(Epoch(message.epoch)) : nullptr;
  if (worker != nullptr) worker->overdue(id_, message.sequence, "was past its deadline");
}

void Client::sendStatistics(uint64_t token) {
  ipc::Statistics statistics;
  statistics.token = token;
  statistics.zygoteRestarts = services_.zygote.restarts();
  statistics.zygoteProcessId = services_.zygote.pid();
  statistics.sharedBytes = inputBytes_ + packageBytes();
  if (group_ == nullptr) return connection_.send(statistics);
  statistics.restarts = group_->restarts();
  for (const auto& [epoch, worker] : group_->workers()) {
    statistics.sharedBytes += worker->sharedBytes();
    const std::optional<SlotTable::SlotAssignment> assignment =
        group_->slotTable().assignmentOf(epoch);
    if (!assignment) continue;
    ipc::WorkerStatistics entry;
    entry.epoch = epoch.value;
    entry.processId = worker->pid();
    if (assignment->slot) {
      entry.pool = assignment->slot->pool.value;
      entry.slot = assignment->slot->index;
    }
    entry.spare = !assignment->slot;
    entry.completedCalls = worker->completedCalls();
    if (const Attachment* attachment = worker->attachment(id_)) {
      entry.outputBytes = attachment->outputBytes();
    }
    statistics.workers.push_back(entry);
  }
  connection_.send(statistics);
}

void Client::end(const std::string& reason) {
  if (std::exchange(over_, true)) return;
  deathWatch_.reset();
  handshake_.cancel();
  if (ownGroup_ != nullptr) {
    ownGroup_->end();
  } else if (group_ != nullptr) {
    group_->leave(*this);
    group_->forget(id_);
    group_ = nullptr;
  }
  events_.over(reason);
}

// ---- as a member of its group -----------------------------------------------------------------

bool Client::uses(const Slot& slot) const {
  return !isShared() ||
         std::find(slotIndices_.begin(), slotIndices_.end(), slot.index) != slotIndices_.end();
}

void Client::introduce(Worker& worker, bool spare) {
  const ChannelMemory& memory = worker.attachment(id_)->memory;
  connection_.send(
      ipc::IntroduceWorker{worker.epoch().value, worker.pid(), memory.outputBytes, spare},
      {worker.pidfd().get(), memory.clientControl.get(), memory.workerControl.get(),
       memory.output.get(), worker.crashLog().get(), worker.statusPage().get()});
}

void Client::slotServed(const Slot& slot, Epoch epoch) {
  if (!isShared()) {
    return connection_.send(ipc::AssignWorker{slot.pool.value, slot.index, epoch.value});
  }
  for (uint32_t own = 0; own < slotIndices_.size(); ++own) {
    if (slotIndices_[own] != slot.index) continue;
    connection_.send(ipc::AssignWorker{pool_.value, own, epoch.value});
  }
}

void Client::slotQuarantined(const Quarantine& quarantine, const std::string& text) {
  const auto duration = static_cast<uint32_t>(quarantine.duration.count());
  const auto send = [&](PoolId pool, uint32_t slot) {
    connection_.send(ipc::SlotQuarantined{pool.value, slot, quarantine.deaths, duration, text});
  };
  if (!isShared()) return send(quarantine.slot.pool, quarantine.slot.index);
  for (uint32_t own = 0; own < slotIndices_.size(); ++own) {
    if (slotIndices_[own] == quarantine.slot.index) send(pool_, own);
  }
}

void Client::workerRetires(Epoch epoch) {
  connection_.send(ipc::RetireWorker{epoch.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kRetireWorkerSent);
}

void Client::callTimeOver(Worker& worker, uint64_t sequence) {
  const std::string limit = std::to_string(services_.options.limits.callTime.count()) +
                            " ms (limits.call_time, ISOPOOL_CLIENT_CALL_TIME)";
  if (!worker.overdue(id_, sequence, "ran for longer than " + limit)) return;
  ++overdueCalls_;
  connection_.send(ipc::CallTimeOver{worker.epoch().value, sequence,
                                     "the call ran for longer than the supervisor allows, " +
                                         limit + "; its worker is replaced if the call continues"});
}

void Client::countCallsOf(Epoch epoch) {
  Worker* worker = group_ != nullptr ? group_->find(epoch) : nullptr;
  const Attachment* attachment = worker != nullptr ? worker->attachment(id_) : nullptr;
  if (attachment != nullptr) callsOfPast_ += attachment->completedCalls();
}

void Client::workerDied(Epoch epoch, const ExitStatus& status) {
  countCallsOf(epoch);
  connection_.send(ipc::WorkerDied{epoch.value, status.signal, status.exitCode});
  ipc::reachCrashPoint(ipc::CrashPoint::kWorkerDiedSent);
}

void Client::channelClosed(Epoch epoch) {
  countCallsOf(epoch);
  connection_.send(ipc::ChannelClosed{epoch.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelClosedSent);
}

void Client::onChannelCorrupt() {
  refuse("a worker closed its channel to this client: the channel contained invalid data");
}

void Client::onNoWorkers(const std::string& text) {
  if (!isShared()) refuse(text);
}

std::string Client::describe() const {
  std::string text = "client " + std::to_string(id_.value);
  if (!isShared()) return text;
  return text + " (" + program_ + ", pid " + std::to_string(peer_->processId) + ", user " +
         std::to_string(peer_->userId) + ")";
}

// ---- for reports -----------------------------------------------------------------------------

ipc::ReportedClient Client::report() const {
  ipc::ReportedClient entry;
  entry.number = id_.value;
  if (peer_) {
    entry.processId = peer_->processId;
    entry.userId = peer_->userId;
    entry.groupId = peer_->groupId;
    if (const ClientClass* its = ownClass()) {
      entry.clientClass = its->name;
      entry.share = its->share;
    }
  }
  entry.program = program_;
  entry.state = !welcomed_ ? "greeting" : draining_ ? "draining" : "attached";
  entry.attachedMilliseconds = static_cast<uint64_t>(
      std::chrono::duration_cast<base::Milliseconds>(services_.loop.now() - attachedAt_).count());
  entry.slots = static_cast<uint32_t>(slotIndices_.size());
  entry.inputBytes = inputBytes_;
  entry.packageBytes = packageBytes();
  entry.outputBytes = outputBytes();
  entry.models = packages_.size();
  entry.overdueCalls = overdueCalls_;
  entry.refusals = refusals_;
  entry.completedCalls = callsOfPast_;
  if (group_ == nullptr) return entry;
  for (const auto& [epoch, worker] : group_->workers()) {
    const Attachment* attachment = worker->attachment(id_);
    if (attachment == nullptr) continue;
    entry.queuedCalls += attachment->queuedCalls();
    entry.handles += attachment->handles();
    entry.handleBytes += attachment->handleBytes();
    entry.completedCalls += attachment->completedCalls();
    entry.runningCalls += worker->runningClient() == id_.value ? 1 : 0;
  }
  return entry;
}

void Client::appendModels(std::map<const PackageMemory*, ipc::ReportedModel>& models) const {
  for (const auto& [number, package] : packages_) {
    ipc::ReportedModel& model = models[package.memory.get()];
    if (model.clients.empty()) {
      model.name = package.memory->name;
      model.bytes = package.memory->digest.bytes;
      char digest[33];
      std::snprintf(digest, sizeof digest, "%016llx%016llx",
                    static_cast<unsigned long long>(package.memory->digest.high),
                    static_cast<unsigned long long>(package.memory->digest.low));
      model.digest = digest;
    }
    model.clients.push_back(id_.value);
  }
}

}  // namespace isopool::supervisor
