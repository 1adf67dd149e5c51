// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/client.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/pidfd.h"
#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"
#include "supervisor/pool/printable.h"

namespace isopool::supervisor {

using base::Epoch;
using base::PoolId;
using ipc::MessageType;
using ipc::ProtocolError;

namespace {

constexpr uint32_t kMaxWorkersPerPool = 4096;
constexpr size_t kLongestReason = 256;

std::string range(uint32_t oldest, uint32_t newest) {
  return oldest == newest ? std::to_string(newest)
                          : std::to_string(oldest) + " to " + std::to_string(newest);
}

// Empty for a moved object: it may change, so its client states no digest.
std::string reportedDigest(const PackageDigest& digest) {
  if (digest.high == 0 && digest.low == 0) return {};
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(digest.high),
                static_cast<unsigned long long>(digest.low));
  return text;
}

}  // namespace

Client::Client(Services& services, ClientId id, base::Fd socket, Over over)
    : services_(services),
      id_(id),
      onOver_(std::move(over)),
      connection_(services.loop, std::move(socket),
                  Connection::Events{.frame = [this](ipc::Frame& frame) { handle(frame); },
                                     .over = [this](const std::string& reason) { end(reason); },
                                     .sent = nullptr}),
      attachedAt_(services.loop.now()),
      self_(this) {}

void Client::zygoteReady() {
  if (saidHello_ && !welcomed_) welcome();
}

void Client::refuse(const std::string& text) {
  if (over_) return;
  connection_.send(ipc::Failure{text});
  hangUp();
  end(text);
}

// ---- messages from the client -----------------------------------------------------------------

void Client::handle(ipc::Frame& frame) {
  if (over_) return;
  try {
    if (!saidHello_ && frame.type != MessageType::kHello) {
      throw ProtocolError("the first message is not Hello");
    }
    dispatch(frame);
  } catch (const ProtocolError& error) {
    refuse(std::string("the control connection broke the protocol: ") + error.what());
  }
}

void Client::dispatch(ipc::Frame& frame) {
  switch (frame.type) {
    case MessageType::kHello:
      return hello(frame);
    case MessageType::kOpenPool: {
      const auto message = ipc::decodeMessage<ipc::OpenPool>(frame);
      if (message.workers == 0 || message.workers > kMaxWorkersPerPool) {
        throw ProtocolError("OpenPool of " + std::to_string(message.workers) + " workers; 1 to " +
                            std::to_string(kMaxWorkersPerPool) + " are allowed");
      }
      openPool(PoolId(message.pool), message.workers);
      return ipc::reachCrashPoint(ipc::CrashPoint::kPoolJoined);
    }
    case MessageType::kClosePool:
      return closePool(PoolId(ipc::decodeMessage<ipc::ClosePool>(frame).pool));
    case MessageType::kDeclareInputSegment:
      return declareInputSegment(frame);
    case MessageType::kRetireInputSegment:
      return retireInputSegment(ipc::decodeMessage<ipc::RetireInputSegment>(frame));
    case MessageType::kOutputSegmentUnmapped:
      return outputSegmentUnmapped(ipc::decodeMessage<ipc::OutputSegmentUnmapped>(frame));
    case MessageType::kTrimMemory:
      ipc::decodeMessage<ipc::TrimMemory>(frame);
      return trimOutputs();
    case MessageType::kLoadPackage:
      return loadPackage(frame);
    case MessageType::kConfirmPackage:
      return confirmPackage(ipc::decodeMessage<ipc::ConfirmPackage>(frame));
    case MessageType::kUnloadPackage:
      return unloadPackage(ipc::decodeMessage<ipc::UnloadPackage>(frame));
    case MessageType::kChannelMapped:
      return channelMapped(ipc::decodeMessage<ipc::ChannelMapped>(frame));
    case MessageType::kReportDeath: {
      const auto message = ipc::decodeMessage<ipc::ReportDeath>(frame);
      if (group_ == nullptr) return;
      return reportDeath(Epoch(message.epoch), printable(message.reason, kLongestReason),
                         message.overdue);
    }
    case MessageType::kReportOverdue:
      return reportOverdue(ipc::decodeMessage<ipc::ReportOverdue>(frame));
    case MessageType::kWorkerReleased:
      if (group_ != nullptr) {
        group_->released(Epoch(ipc::decodeMessage<ipc::WorkerReleased>(frame).epoch), id_);
      }
      return;
    case MessageType::kAcknowledgeDrain:
      throw ProtocolError("AcknowledgeDrain without Drain");
    case MessageType::kRequestStatistics:
      return sendStatistics(ipc::decodeMessage<ipc::RequestStatistics>(frame).token);
    default:
      throw ProtocolError("unexpected message of type " +
                          std::to_string(static_cast<uint32_t>(frame.type)));
  }
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
  if (!serves(message.role)) throw ProtocolError("Hello of an unknown role");
  base::Fd pidfd = onlyDescriptor(frame);
  role_ = static_cast<ipc::ClientRole>(message.role);
  // It ended while it waited to be served, as when this supervisor starts: its socket's backlog
  // still has it.
  if (base::isReaped(pidfd)) return end("");
  const std::string refusal = admit(message, pidfd);
  if (!refusal.empty()) return refuse(refusal);
  saidHello_ = true;
  protocolVersion_ = std::min(message.protocolVersion, ipc::kProtocolVersion);
  pidfd_ = std::move(pidfd);
  deathWatch_.emplace(services_.loop, pidfd_.get());
  deathWatch_->onReadable([this] { end(""); });
  if (services_.zygote.readiness() || isOperator()) welcome();
}

void Client::sendWelcome(ipc::Welcome welcome) {
  welcomed_ = true;
  welcome.processId = ::getpid();
  welcome.zygoteProcessId = services_.zygote.pid();
  if (const auto& zygote = services_.zygote.readiness()) {
    welcome.pythonVersion = zygote->pythonVersion;
    welcome.torchVersion = zygote->torchVersion;
    welcome.livenessWordWorks = zygote->livenessWordWorks;
  }
  welcome.client = id_.value;
  welcome.protocolVersion = protocolVersion_;
  welcome.memoryLimit = limits().memory;
  for (const auto& [key, value, source] : services_.options.settings) {
    welcome.settings.push_back({key, value, source});
  }
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  connection_.send(welcome, {pidfd.get()});
  ipc::reachCrashPoint(ipc::CrashPoint::kClientWelcomed);
}

void Client::channelMapped(const ipc::ChannelMapped& message) {
  Worker* worker = group_ != nullptr ? group_->find(Epoch(message.epoch)) : nullptr;
  // The worker may have died, or the client may have left its pool, since IntroduceWorker was sent.
  if (worker == nullptr || worker->stage() == Worker::Stage::kDying) return;
  const Attachment* attachment = worker->attachment(id_);
  if (attachment == nullptr && worker->wasIntroduced()) return;
  if (attachment == nullptr || attachment->stage != Attachment::Stage::kIntroduced) {
    throw ProtocolError("ChannelMapped for a channel that was not offered");
  }
  if (!ipc::memoryObjectHas(attachment->memory.clientControl, ipc::kClientControlBytes,
                            ipc::Seal::kSingleWriter)) {
    throw ProtocolError("ChannelMapped before the control segment was sealed");
  }
  worker->attach(id_, share(), limits());
  // After attach(): a worker knows a client by its channel.
  for (const auto& [number, package] : packages_) {
    if (package.mapped) tell(*worker, number, package);
  }
  for (const auto& [number, segment] : inputSegments_) worker->mapSegment(id_, number, segment);
  ipc::reachCrashPoint(ipc::CrashPoint::kClientMemoryTold);
}

Worker* Client::judged(Epoch epoch) {
  Worker* worker = group_->find(epoch);
  const Attachment* attachment = worker != nullptr ? worker->attachment(id_) : nullptr;
  return attachment != nullptr && attachment->listening() ? worker : nullptr;
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
  statistics.sharedBytes = declaredBytes() + packageBytes();
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
  leaveGroup();
  closeMemory();
  onOver_(reason);
}

// In the background: the last process that has the memory frees it, a millisecond for 16 MiB, and
// many clients may leave at once.
void Client::closeMemory() {
  struct Memory {
    std::map<uint32_t, Package> packages;
    std::map<uint32_t, std::shared_ptr<InputSegment>> inputs;
  };
  if (packages_.empty() && inputSegments_.empty()) return;
  auto memory = std::make_shared<Memory>();
  memory->packages.swap(packages_);
  memory->inputs.swap(inputSegments_);
  services_.loop.runInBackground([memory] {
    *memory = Memory();
    return base::EventLoop::Handler([] {});
  });
}

// ---- as a member of its group -----------------------------------------------------------------

void Client::introduce(Worker& worker, bool spare) {
  const ChannelMemory& memory = worker.attachment(id_)->memory;
  connection_.send(
      ipc::IntroduceWorker{worker.epoch().value, worker.pid(), memory.outputBytes, spare},
      {worker.pidfd().get(), memory.clientControl.get(), memory.workerControl.get(),
       memory.output.get(), worker.crashLog().get(), worker.statusPage().get()});
}

void Client::sendAssignment(PoolId pool, uint32_t slot, Epoch epoch) {
  connection_.send(ipc::AssignWorker{pool.value, slot, epoch.value});
}

void Client::sendQuarantine(PoolId pool, uint32_t slot, const Quarantine& quarantine,
                            const std::string& text) {
  const auto duration = static_cast<uint32_t>(quarantine.duration.count());
  connection_.send(ipc::SlotQuarantined{pool.value, slot, quarantine.deaths, duration, text});
}

void Client::workerRetires(Epoch epoch) {
  connection_.send(ipc::RetireWorker{epoch.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kRetireWorkerSent);
}

void Client::callTimeOver(Worker& worker, uint64_t sequence) {
  std::string limit = std::to_string(callTime().count()) + " ms (" + settingOfCallTime() + ")";
  if (worker.isStopped()) limit += "; a signal had stopped its worker";
  if (!worker.overdue(id_, sequence, "ran for longer than " + limit)) return;
  ++overdueCalls_;
  connection_.send(ipc::CallTimeOver{worker.epoch().value, sequence,
                                     "the call ran for longer than the supervisor allows, " +
                                         limit + "; its worker is replaced if the call continues"});
}

void Client::countCallsOf(Epoch epoch) {
  Worker* worker = group_ != nullptr ? group_->find(epoch) : nullptr;
  const Attachment* attachment = worker != nullptr ? worker->attachment(id_) : nullptr;
  if (attachment == nullptr) return;
  callsOfPast_ += attachment->completedCalls();
  servedOfPast_ += attachment->servedCalls();
}

void Client::countCallsOfAll() {
  if (group_ == nullptr) return;
  for (const auto& [epoch, worker] : group_->workers()) countCallsOf(epoch);
}

void Client::workerDied(Epoch epoch, const ExitStatus& status) {
  countCallsOf(epoch);
  connection_.send(ipc::WorkerDied{epoch.value, status.signal, status.exitCode});
  ipc::reachCrashPoint(ipc::CrashPoint::kWorkerDiedSent);
  releaseRetiredInputs();
}

void Client::channelClosed(Epoch epoch) {
  countCallsOf(epoch);
  connection_.send(ipc::ChannelClosed{epoch.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelClosedSent);
  releaseRetiredInputs();
}

void Client::onChannelCorrupt() {
  refuse("a worker closed its channel to this client: the channel contained invalid data");
}

// ---- for reports -----------------------------------------------------------------------------

ipc::ReportedClient Client::reportFigures() const {
  ipc::ReportedClient entry;
  entry.number = id_.value;
  entry.attachedMilliseconds = static_cast<uint64_t>(
      std::chrono::duration_cast<base::Milliseconds>(services_.loop.now() - attachedAt_).count());
  entry.inputBytes = declaredBytes();
  entry.packageBytes = packageBytes();
  entry.outputBytes = outputBytes();
  entry.models = packages_.size();
  entry.overdueCalls = overdueCalls_;
  entry.refusals = std::accumulate(refusals_.begin(), refusals_.end(), uint64_t{0});
  entry.completedCalls = completedCalls();
  if (group_ == nullptr) return entry;
  for (const auto& [epoch, worker] : group_->workers()) {
    const Attachment* attachment = worker->attachment(id_);
    if (attachment == nullptr) continue;
    entry.queuedCalls += attachment->queuedCalls();
    entry.handles += attachment->handles();
    entry.handleBytes += attachment->handleBytes();
    entry.runningCalls += worker->runningClient() == id_.value ? 1 : 0;
  }
  return entry;
}

ClassTotals Client::totals() const {
  return {.connections = welcomed_ ? 1u : 0u,
          .completedCalls = completedCalls(),
          .overdueCalls = overdueCalls_,
          .refusals = refusals_,
          .models = {}};
}

uint64_t Client::completedCalls() const {
  return callsOfPast_ + sumOverWorkers(&Attachment::completedCalls);
}

uint64_t Client::servedCalls() const {
  return servedOfPast_ + sumOverWorkers(&Attachment::servedCalls);
}

void Client::appendModels(std::map<const PackageMemory*, ipc::ReportedModel>& models) const {
  for (const auto& [number, package] : packages_) {
    ipc::ReportedModel& model = models[package.memory.get()];
    if (model.clients.empty()) {
      model.name = package.memory->name;
      model.bytes = package.memory->digest.bytes;
      model.digest = reportedDigest(package.memory->digest);
    }
    model.clients.push_back(id_.value);
  }
}

}  // namespace isopool::supervisor
