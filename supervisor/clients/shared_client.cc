// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/shared_client.h"

#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/log/log.h"
#include "base/system_call.h"
#include "ipc/crash_point.h"
#include "supervisor/clients/report.h"
#include "supervisor/pool/printable.h"
#include "supervisor/pool/slot_choice.h"

namespace isopool::supervisor {

using base::Epoch;
using base::PoolId;
using ipc::ProtocolError;

namespace {

constexpr size_t kLongestProgramName = 64;
constexpr uint32_t kFirstProtocolWithPauses = 5;

}  // namespace

SharedClient::SharedClient(Services& services, ClientId id, base::Fd socket, const Peer& peer,
                           Events events)
    : Client(services, id, std::move(socket), events.over),
      peer_(peer),
      events_(std::move(events)),
      handshake_(services.loop),
      pauseEnd_(services.loop),
      program_(printable(services.processes.programOf(peer.processId), kLongestProgramName)) {
  handshake_.setAfter(services.options.handshakeTimeout, [this] {
    if (saidHello()) return;
    refuse("it sent no Hello within " + std::to_string(services_.options.handshakeTimeout.count()) +
           " ms (ISOPOOL_HANDSHAKE_TIMEOUT)");
  });
}

SharedClient::~SharedClient() {
  if (group_ != nullptr) group_->forget(id());
}

std::string SharedClient::describe() const {
  return "client " + std::to_string(id().value) + " (" + program_ + ", pid " +
         std::to_string(peer_.processId) + ", user " + std::to_string(peer_.userId) + ")";
}

void SharedClient::drain(const std::string& text, bool hasSuccessor) {
  if (over() || std::exchange(draining_, true)) return;
  hasSuccessor_ = hasSuccessor;
  drainText_ = text;
  if (paused_) resume();
  sendDrain();
}

void SharedClient::sendDrain() {
  if (welcomed() && !isOperator()) send(ipc::Drain{drainText_});
  ipc::reachCrashPoint(ipc::CrashPoint::kDrainSent);
}

bool SharedClient::drained() {
  if (over()) return true;
  if (isOperator()) return !handshake_.isSet() && connectionIdle();
  if (!welcomed() || group_ == nullptr) return !hasSuccessor_;
  if (!drainAcknowledged_) return false;
  // The client publishes no more calls: what has ended stays ended.
  const auto& workers = group_->workers();
  callsEnded_ = callsEnded_ || std::none_of(workers.begin(), workers.end(), [&](const auto& entry) {
                  return entry.second->busyWith(id());
                });
  return callsEnded_;
}

std::string SharedClient::pause(base::Milliseconds time) {
  if (!welcomed()) return describe() + " is not attached yet";
  if (protocolVersion() < kFirstProtocolWithPauses) {
    return describe() + " has a library of an older version, which can't be paused";
  }
  paused_ = true;
  send(ipc::PauseCalls{true});
  ipc::reachCrashPoint(ipc::CrashPoint::kPauseSent);
  pauseEnd_.cancel();
  if (time.count() != 0) pauseEnd_.setAfter(time, [this] { resume(); });
  return {};
}

void SharedClient::resume() {
  pauseEnd_.cancel();
  paused_ = false;
  send(ipc::PauseCalls{false});
  base::log(base::LogLevel::kInfo, describe() + " goes on after its pause");
}

// ---- messages from the client -----------------------------------------------------------------

void SharedClient::dispatch(ipc::Frame& frame) {
  if (isOperator()) return handleOperator(frame);
  if (draining_ && frame.type == ipc::MessageType::kAcknowledgeDrain) {
    drainAcknowledged_ = true;
    return;
  }
  if (frame.type == ipc::MessageType::kReportCalls) {
    const auto message = ipc::decodeMessage<ipc::ReportCalls>(frame);
    reported_ = CallsInFlight{message.waiting, message.awaited};
    return events_.calls(*this, message.models);
  }
  Client::dispatch(frame);
}

void SharedClient::handleOperator(const ipc::Frame& frame) {
  handshake_.cancel();
  if (frame.type == ipc::MessageType::kRequestSettings) {
    ipc::SettingsInForce answer;
    answer.token = ipc::decodeMessage<ipc::RequestSettings>(frame).token;
    answer.settings = events_.settings();
    makeFit(answer);
    return send(answer);
  }
  if (frame.type == ipc::MessageType::kRequestAction) {
    const auto request = ipc::decodeMessage<ipc::RequestAction>(frame);
    ipc::ActionDone answer = events_.act(request);
    answer.token = request.token;
    return send(answer);
  }
  const uint64_t token = ipc::decodeMessage<ipc::RequestReport>(frame).token;
  ipc::Report report = events_.report();
  report.token = token;
  makeFit(report);
  send(report);
}

bool SharedClient::serves(uint32_t role) const {
  return role == static_cast<uint32_t>(ipc::ClientRole::kProgram) ||
         role == static_cast<uint32_t>(ipc::ClientRole::kOperator);
}

std::string SharedClient::admit(const ipc::Hello& hello, const base::Fd& pidfd) {
  try {
    if (!services_.processes.isPidfdOf(pidfd, peer_.processId)) {
      throw ProtocolError("Hello with a descriptor that is not a pidfd of the client");
    }
  } catch (const base::SystemCallError& error) {
    return std::string("isopoold can't read the client's pidfd: ") + error.what();
  }
  if (!hello.program.empty()) program_ = printable(hello.program, kLongestProgramName);
  if (hello.role == static_cast<uint32_t>(ipc::ClientRole::kProgram)) {
    std::string refusal = events_.whyNoMorePrograms(program_);
    if (!refusal.empty()) return refusal;
  }
  if (!isOperator()) handshake_.cancel();
  class_ = chosenClass();
  return {};
}

void SharedClient::welcome() {
  ipc::Welcome welcome;
  welcome.shared = true;
  welcome.callLimit = limits().calls;
  sendWelcome(std::move(welcome));
  if (isOperator()) return;
  base::log(base::LogLevel::kInfo, describe() + " is attached",
            {{"client", id().value},
             {"program", program_},
             {"client_pid", peer_.processId},
             {"user", peer_.userId}});
  if (draining_) sendDrain();
}

void SharedClient::openPool(PoolId pool, uint32_t workers) {
  if (group_ != nullptr) throw ProtocolError("OpenPool a second time on one connection");
  pool_ = pool;
  group_ = &events_.groupFor(ownClass());
  slotIndices_ = group_->leastUsedSlots(kSharedPool, workers, id());
  group_->join(*this);
}

void SharedClient::closePool(PoolId pool) {
  if (group_ == nullptr || pool != pool_) return;
  // The channels close one by one; a second pool would need a second connection.
  group_->leave(*this);
  slotIndices_.clear();
}

// The class of the settings that a client of this user and program has.
std::string SharedClient::chosenClass() const {
  for (const ClientClass& each : services_.options.classes) {
    if (each.userId && *each.userId != peer_.userId) continue;
    if (!each.program.empty() && each.program != program_) continue;
    return each.name;
  }
  return {};
}

// By its name: a reload may have added a class that suits the client, too.
const ClientClass* SharedClient::ownClass() const {
  const std::vector<ClientClass>& classes = services_.options.classes;
  const auto found = std::find_if(classes.begin(), classes.end(),
                                  [this](const ClientClass& each) { return each.name == class_; });
  return found != classes.end() ? &*found : nullptr;
}

ClientLimits SharedClient::limits() const {
  ClientLimits limits = services_.options.limits;
  const ClientClass* its = ownClass();
  if (its != nullptr && its->callTime) limits.callTime = *its->callTime;
  return limits;
}

std::string SharedClient::settingOfCallTime() const {
  const ClientClass* its = ownClass();
  if (its != nullptr && its->callTime) return "class." + its->name + ".call_time";
  return "limits.call_time, ISOPOOL_CLIENT_CALL_TIME";
}

uint32_t SharedClient::share() const {
  const ClientClass* its = ownClass();
  return its != nullptr ? its->share : 1;
}

void SharedClient::reportDeath(Epoch epoch, const std::string& reason, bool /*overdue*/) {
  if (Worker* worker = judged(epoch)) group_->workerReported(*worker, *this, reason);
}

// All clients together may use half of isopoold's open files, and one client a quarter; the rest is
// for connections, workers and channels.
std::string SharedClient::refusalOfDescriptor() const {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  const size_t own = declaredDescriptors();
  const size_t ofAll = events_.descriptorsOfClients();
  if (own < limit.rlim_cur / 4 && ofAll < limit.rlim_cur / 2) {
    if (!events_.lacksDescriptors()) return {};
    return "isopoold has reached its limit of " + std::to_string(limit.rlim_cur) +
           " open files (ulimit -n, LimitNOFILE)";
  }
  return "the program has " + std::to_string(own) + " segments and packages, all programs have " +
         std::to_string(ofAll) +
         "; one program may have a quarter, and all programs half, of the " +
         std::to_string(limit.rlim_cur) + " files that isopoold may open (ulimit -n, LimitNOFILE)";
}

void SharedClient::takePackage(const ipc::LoadPackage& message,
                               std::shared_ptr<PackageMemory> memory) {
  std::string refusal = refusalOfDescriptor();
  // The memory of a moved object exists already and belongs to this client alone: it is counted,
  // but neither compared nor refused by limits.memory.
  if (message.shared) {
    // The client does not wait for an answer here, and its calls need the object: a refusal has to
    // end the connection.
    if (!refusal.empty()) return refuse("an object can't be moved: " + refusal);
    return holdPackage(message, std::move(memory), nullptr);
  }
  ClientLimit met = ClientLimit::kDescriptors;
  if (refusal.empty()) {
    met = ClientLimit::kMemory;
    refusal = refusalOfMemory(message.bytes, "a package");
  }
  const uint32_t models = limits().models;
  if (models != 0 && packages() >= models) {
    met = ClientLimit::kModels;
    refusal = "the program has " + std::to_string(packages()) + " packages loaded and may have " +
              std::to_string(models) + " (limits.models, ISOPOOL_CLIENT_MODELS)";
  }
  if (!refusal.empty()) {
    countRefusal(met);
    return send(ipc::PackageHeld{message.package, refusal});
  }
  const auto candidate = services_.packages.find(memory->digest);
  if (candidate != nullptr) {
    holdPackage(message, std::move(memory), candidate);
    return send(ipc::PackageHeld{message.package, ""}, {candidate->object.get()});
  }
  services_.packages.add(memory);
  holdPackage(message, std::move(memory), nullptr);
  send(ipc::PackageHeld{message.package, ""});
  ipc::reachCrashPoint(ipc::CrashPoint::kPackageHeldSent);
}

void SharedClient::leaveGroup() {
  handshake_.cancel();
  pauseEnd_.cancel();
  if (group_ == nullptr) return;
  countCallsOfAll();
  group_->leave(*this);
  group_->forget(id());
  group_ = nullptr;
}

// ---- as a member of its group -----------------------------------------------------------------

bool SharedClient::uses(const Slot& slot) const {
  return std::find(slotIndices_.begin(), slotIndices_.end(), slot.index) != slotIndices_.end();
}

void SharedClient::slotsChanged() {
  const size_t all = group_->slotTable().slotsOf(kSharedPool).size();
  const std::vector<uint32_t> former = std::exchange(
      slotIndices_, rebalanced(slotIndices_, group_->leastUsedSlots(
                                                 kSharedPool, static_cast<uint32_t>(all), id())));
  const std::vector<Quarantine> quarantines =
      group_->slotTable().quarantinedSlots(services_.loop.now());
  for (uint32_t own = 0; own < slotIndices_.size(); ++own) {
    if (slotIndices_[own] == former[own]) continue;
    for (const Quarantine& each : quarantines) {
      if (each.slot.index == slotIndices_[own])
        sendQuarantine(pool_, own, each, group_->describe(each));
    }
    // If the slot has no worker yet, or it is not attached, the assignment follows later.
    Worker* worker = group_->serving(Slot{kSharedPool, slotIndices_[own]});
    if (worker == nullptr || worker->stage() != Worker::Stage::kReady) continue;
    const Attachment* attachment = worker->attachment(id());
    if (attachment == nullptr) {
      group_->introduce(*worker, *this);
    } else if (attachment->usable()) {
      assign(own, worker->epoch());
    }
  }
  for (const uint32_t slot : std::set<uint32_t>(former.begin(), former.end())) {
    Worker* worker = group_->serving(Slot{kSharedPool, slot});
    if (worker != nullptr && !uses(Slot{kSharedPool, slot})) group_->leaveWorker(*worker, *this);
  }
}

void SharedClient::slotServed(const Slot& slot, Epoch epoch) {
  for (uint32_t own = 0; own < slotIndices_.size(); ++own) {
    if (slotIndices_[own] == slot.index) assign(own, epoch);
  }
}

void SharedClient::assign(uint32_t own, Epoch epoch) {
  slotsWithheld_.erase(own);
  sendAssignment(pool_, own, epoch);
}

void SharedClient::slotQuarantined(const Quarantine& quarantine, const std::string& text) {
  for (uint32_t own = 0; own < slotIndices_.size(); ++own) {
    if (slotIndices_[own] == quarantine.slot.index) sendQuarantine(pool_, own, quarantine, text);
  }
}

void SharedClient::onOwnQuarantine(const ClientHolds::ClientQuarantine& own) {
  const Quarantine quarantine{.slot = {}, .deaths = own.deaths, .duration = own.duration};
  for (uint32_t index = 0; index < slotIndices_.size(); ++index) {
    Worker* worker = group_->serving(Slot{kSharedPool, slotIndices_[index]});
    const Attachment* attachment = worker != nullptr ? worker->attachment(id()) : nullptr;
    const bool served = attachment != nullptr && attachment->stage != Attachment::Stage::kDetaching;
    if (served || !slotsWithheld_.insert(index).second) continue;
    sendQuarantine(pool_, index, quarantine, "this program " + own.text);
  }
}

// ---- for reports -----------------------------------------------------------------------------

std::string SharedClient::className() const {
  const ClientClass* its = ownClass();
  return its != nullptr ? its->name : "";
}

void SharedClient::addNewTo(ClassTotals& all) { all.advance(counted_, totals()); }

ipc::ReportedClient SharedClient::report() {
  ipc::ReportedClient entry = reportFigures();
  if (reported_) {
    // What a ring has besides calls is not queued: notes of the program, calls that have moved.
    const uint64_t awaited = reported_->awaited;
    const uint64_t inRings = awaited > entry.runningCalls ? awaited - entry.runningCalls : 0;
    entry.queuedCalls = reported_->waiting + std::min(entry.queuedCalls, inRings);
  }
  entry.stalledMilliseconds = static_cast<uint64_t>(
      stall_.look(services_.loop.now(), entry.queuedCalls, entry.completedCalls).count());
  entry.processId = peer_.processId;
  entry.userId = peer_.userId;
  entry.groupId = peer_.groupId;
  if (const ClientClass* its = ownClass()) {
    entry.clientClass = its->name;
    entry.share = its->share;
  }
  entry.program = program_;
  entry.state = !welcomed() ? "greeting" : draining_ ? "draining" : paused_ ? "paused" : "attached";
  entry.slots = static_cast<uint32_t>(slotIndices_.size());
  if (group_ == nullptr) return entry;
  if (entry.state == "attached" && group_->keptApart(id())) entry.state = "apart";
  if (const auto own = group_->quarantineOf(id())) {
    entry.state = "quarantined";
    entry.quarantineMilliseconds = static_cast<uint64_t>(own->duration.count());
    entry.quarantine = own->text;
  }
  return entry;
}

}  // namespace isopool::supervisor
