// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/simulated_client.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "client/pool/worker_choice.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/memory/memory_object.h"

namespace isopool::simulation {

using client::RequestOutcome;
using client::RetryDecision;

namespace {

constexpr uint32_t kPool = 1;
constexpr uint32_t kPackage = 1;
constexpr Microseconds kLook(500'000);
constexpr Microseconds kLongCall(5'000'000);

}  // namespace

SimulatedClient::SimulatedClient(const Places& places, pid_t pid, const Plan& plan)
    : places_(places), pid_(pid), plan_(plan), slots_(plan.workers) {}

SimulatedClient::~SimulatedClient() = default;

template <typename Message>
void SimulatedClient::send(const Message& message, std::initializer_list<int> descriptors) {
  if (control_.valid()) control_.send(message, descriptors, std::chrono::milliseconds(0));
}

void SimulatedClient::appendDescriptors(std::vector<int>& descriptors) const {
  if (control_.valid() && !dead_) descriptors.push_back(control_.fd());
}

SimulatedClient::Channel* SimulatedClient::channelOf(uint64_t epoch) {
  const auto found = channels_.find(epoch);
  return found != channels_.end() ? &found->second : nullptr;
}

bool SimulatedClient::served() const {
  return std::all_of(slots_.begin(), slots_.end(), [this](const Slot& slot) {
    const auto channel = channels_.find(slot.epoch);
    return channel != channels_.end() && !channel->second.dead;
  });
}

void SimulatedClient::act() {
  World& world = places_.world;
  if (dead_ || over_) return;
  if (!begun_) begin();
  if (world.misfortune(places_.misfortunes.clientDies)) {
    return places_.processes.end(pid_, {.signal = SIGKILL});
  }
  readControl();
  if (over_) return;
  for (auto& [epoch, channel] : channels_) {
    deliver(channel);
    watchDeadlines(epoch, channel);
    noticeDeath(epoch, channel);
    reportFalsely(epoch);
  }
  makeCalls();
  dispatch();
  if (world.misfortune(places_.misfortunes.clientSendsNonsense) && control_.valid()) {
    [[maybe_unused]] const ssize_t written = ::write(control_.fd(), "neither this", 12);
  }
  // libisopool's threads also check regularly without being woken.
  if (!over_) wakeAt(world.now() + kLook);
}

void SimulatedClient::begin() {
  begun_ = true;
  base::Fd socket = places_.connect();
  if (!socket.valid()) return lose("there is no supervisor");
  control_ = ipc::ControlSocket(std::move(socket));
  const base::Fd self = places_.processes.open(pid_);
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  hello.processId = pid_;
  hello.program = "simulated";
  send(hello, {self.get()});
}

// ---- messages of the supervisor --------------------------------------------------------------

void SimulatedClient::readControl() {
  ipc::ReceiveResult result = ipc::ReceiveResult::kOk;
  while (!over_ && control_.valid() && result == ipc::ReceiveResult::kOk) {
    result = control_.receive();
    while (std::optional<ipc::Frame> frame = control_.next()) {
      handle(*frame);
      if (over_) return;
    }
  }
  if (result == ipc::ReceiveResult::kPeerGone) lose("the supervisor is gone");
}

void SimulatedClient::handle(ipc::Frame& frame) {
  World& world = places_.world;
  switch (frame.type) {
    case ipc::MessageType::kWelcome: {
      opened_ = true;
      number_ = ipc::decodeMessage<ipc::Welcome>(frame).client;
      send(ipc::OpenPool{kPool, plan_.workers});
      if (plan_.loadsPackage) {
        package_ = ipc::createMemoryObject("simulated:package", ipc::kPageBytes);
        ipc::sealMemoryObject(package_, ipc::Seal::kReadOnly);
        send(ipc::LoadPackage{.package = kPackage,
                              .bytes = ipc::kPageBytes,
                              .name = "package",
                              .digestLow = 7,
                              .digestHigh = 7},
             {package_.get()});
        packageHeld_ = !plan_.shared;
      }
      nextCall_ = world.now();
      return;
    }
    case ipc::MessageType::kIntroduceWorker:
      return introduce(frame);
    case ipc::MessageType::kAssignWorker:
      return assign(ipc::decodeMessage<ipc::AssignWorker>(frame));
    case ipc::MessageType::kWorkerDied:
      return died(ipc::decodeMessage<ipc::WorkerDied>(frame));
    case ipc::MessageType::kSlotQuarantined: {
      const auto message = ipc::decodeMessage<ipc::SlotQuarantined>(frame);
      if (message.deaths != 0) {
        ++quarantines_;
        ++places_.quarantines;
      }
      wasQuarantined_ = wasQuarantined_ || message.text.starts_with("this program ");
      slots_.at(message.slot).quarantine = message.text;
      return;
    }
    case ipc::MessageType::kPackageHeld: {
      const auto message = ipc::decodeMessage<ipc::PackageHeld>(frame);
      if (!message.refusal.empty())
        return world.violated("a package was refused: " + message.refusal);
      packageHeld_ = true;
      if (!frame.descriptors.empty()) {
        send(ipc::ConfirmPackage{kPackage, world.chance.oneIn(2)});
      }
      return;
    }
    case ipc::MessageType::kRetireWorker: {
      const uint64_t epoch = ipc::decodeMessage<ipc::RetireWorker>(frame).epoch;
      const Channel* channel = channelOf(epoch);
      const bool serves = std::any_of(slots_.begin(), slots_.end(),
                                      [&](const Slot& slot) { return slot.epoch == epoch; });
      if (channel != nullptr && (serves || !channel->inFlight.empty())) return;
      return send(ipc::WorkerReleased{epoch});
    }
    case ipc::MessageType::kChannelClosed: {
      const uint64_t epoch = ipc::decodeMessage<ipc::ChannelClosed>(frame).epoch;
      if (Channel* channel = channelOf(epoch)) {
        deliver(*channel);
        settle(*channel);
        channels_.erase(epoch);
      }
      return;
    }
    case ipc::MessageType::kDrain:
      draining_ = true;
      return send(ipc::AcknowledgeDrain{});
    case ipc::MessageType::kPauseCalls:
      paused_ = ipc::decodeMessage<ipc::PauseCalls>(frame).paused;
      return;
    case ipc::MessageType::kFailure:
      if (const auto text = ipc::decodeMessage<ipc::Failure>(frame).text;
          text.find("another supervisor") == std::string::npos || inFlight_ == 0) {
        return lose(text);
      }
      // What is in flight may have ended: its answer is in a ring, or its worker is dead.
      for (auto& [epoch, channel] : channels_) {
        deliver(channel);
        if (!channel.inFlight.empty() && !ipc::livenessWordOwnerDied(channel.end->peer())) {
          world.violated("a client was passed on with a call in flight");
        }
      }
      return lose("passed on");
    default:
      return;
  }
}

void SimulatedClient::introduce(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::IntroduceWorker>(frame);
  if (frame.descriptors.size() != 6 || died_.count(message.epoch) != 0 ||
      channels_.count(message.epoch) != 0) {
    return places_.world.violated(
        "a worker was introduced twice, after its death, or incompletely");
  }
  Channel& channel = channels_[message.epoch];
  channel.pidfd = std::move(frame.descriptors[0]);
  const base::Fd& own = frame.descriptors[1];
  ipc::Mapping mapping =
      ipc::mapShared(own, 0, ipc::kClientControlBytes, ipc::Access::kReadWrite, ipc::Prefault::kNo);
  ipc::sealMemoryObject(own, ipc::Seal::kSingleWriter);
  channel.end = std::make_unique<ipc::ClientEnd>(
      base::Epoch(message.epoch), std::move(mapping),
      ipc::mapShared(frame.descriptors[2], 0, ipc::kWorkerControlBytes, ipc::Access::kReadOnly,
                     ipc::Prefault::kNo));
  send(ipc::ChannelMapped{message.epoch});
}

void SimulatedClient::assign(const ipc::AssignWorker& message) {
  World& world = places_.world;
  world.note("assigned", message.slot, message.epoch);
  if (places_.misfortunes.clientForgetsAssignments && world.misfortune(8)) return;
  const Channel* channel = channelOf(message.epoch);
  if (channel == nullptr || !channel->end->attached()) {
    return world.violated("worker " + std::to_string(message.epoch) +
                          " serves a slot but is dead or was never introduced");
  }
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    // A shared worker may serve several slots, a private one only one. The previous worker of the
    // slot has ended.
    if (!plan_.shared && slot != message.slot && slots_[slot].epoch == message.epoch) {
      world.violated("worker " + std::to_string(message.epoch) + " serves two slots");
    }
  }
  Slot& slot = slots_.at(message.slot);
  slot.epoch = message.epoch;
  slot.quarantine.clear();
}

void SimulatedClient::died(const ipc::WorkerDied& message) {
  World& world = places_.world;
  Channel* channel = channelOf(message.epoch);
  if (!died_.insert(message.epoch).second) return world.violated("a death was reported twice");
  if (channel == nullptr) return;
  // The worker must be reaped: the process of its pidfd is no longer in the table.
  if (places_.processes.pidOf(channel->pidfd) != 0) {
    world.violated("worker " + std::to_string(message.epoch) +
                   " was reported dead but is not reaped");
  }
  deliver(*channel);
  settle(*channel);
  channels_.erase(message.epoch);
}

// ---- calls -----------------------------------------------------------------------------------

void SimulatedClient::makeCalls() {
  World& world = places_.world;
  if (!opened_ || left_ || (plan_.loadsPackage && !packageHeld_)) return;
  while (made_ < plan_.calls && world.now() >= nextCall_) {
    ++made_;
    nextCall_ = world.now() + world.chance.time(Microseconds(0), plan_.pause);
    Call call;
    call.id = ++places_.lastCall;
    call.idempotent = world.chance.oneIn(3);
    call.text.call = call.id;
    call.text.package = plan_.loadsPackage && world.chance.oneIn(2) ? kPackage : 0;
    call.text.microseconds = std::min(world.latency(), plan_.longestCall).count();
    if (world.chance.oneIn(3)) {
      call.deadline = world.now() + world.chance.time(Microseconds(1000), Microseconds(3'000'000));
      if (world.storm() && world.chance.oneIn(8)) call.text.microseconds = -1;
    } else if (world.chance.oneIn(30)) {
      call.text.microseconds = std::min(kLongCall, plan_.longestCall).count();
    }
    call.text.barren = world.storm() && !call.idempotent && world.chance.oneIn(12) ? 1 : 0;
    places_.ledger.made(call.id, call.idempotent);
    waiting_.push_back(call);
  }
  if (made_ < plan_.calls) wakeAt(nextCall_);
}

void SimulatedClient::dispatch() {
  World& world = places_.world;
  const bool unavailable =
      opened_ && std::all_of(slots_.begin(), slots_.end(),
                             [](const Slot& slot) { return !slot.quarantine.empty(); });
  for (size_t left = waiting_.size(); left > 0; --left) {
    Call call = std::move(waiting_.front());
    waiting_.pop_front();
    if (unavailable || draining_ || left_) {
      places_.ledger.ended(call.id, Ending::kRefused);
    } else if (call.deadline && world.now() >= *call.deadline) {
      conclude(std::move(call), RequestOutcome::kWithdrawn);
    } else {
      const auto slot = client::chooseWorker(
          paused_ ? 0 : slots_.size(), lastSlot_, client::kCallsPerWorker, [&](size_t index) {
            const Channel* channel = channelOf(slots_[index].epoch);
            client::WorkerLoad load;
            load.serves = channel != nullptr && !channel->dead;
            if (load.serves) load.inFlight = static_cast<uint32_t>(channel->inFlight.size());
            load.users = load.inFlight;
            return load;
          });
      if (!slot || !publish(*channelOf(slots_[*slot].epoch), *slot, call)) {
        waiting_.push_back(std::move(call));
      }
    }
  }
}

bool SimulatedClient::publish(Channel& channel, size_t slot, Call call) {
  // As in libisopool: the sequences of all awaited answers lie within the size of the ring.
  if (channel.inFlight.size() + channel.abandoned.size() >= ipc::kRingSlots / 2 ||
      !channel.end->canPublish()) {
    return false;
  }
  ipc::OutgoingCall outgoing;
  outgoing.payload.inlineBytes = std::as_bytes(std::span(&call.text, 1));
  const uint64_t sequence = channel.end->publish(outgoing);
  places_.world.note("published", call.id, channel.end->epoch().value);
  if (call.deadline) wakeAt(*call.deadline);
  channel.inFlight.emplace(sequence, std::move(call));
  ++inFlight_;
  lastSlot_ = slot;
  places_.wakeWorkers();
  return true;
}

void SimulatedClient::deliver(Channel& channel) {
  ipc::ReceivedCompletion completion;
  for (;;) {
    const ipc::Received received = channel.end->peek(completion);
    if (received == ipc::Received::kNothing) return;
    if (received == ipc::Received::kPoisoned) {
      return places_.world.violated("the ring of an honest worker has invalid content");
    }
    const uint64_t sequence = completion.sequence;
    channel.end->consumed();
    if (channel.abandoned.erase(sequence) != 0) continue;
    const auto found = channel.inFlight.find(sequence);
    if (found == channel.inFlight.end()) {
      places_.world.violated("an answer belongs to no call, or a call was answered twice");
      continue;
    }
    CallText text;
    std::memcpy(&text, completion.bytes, sizeof text);
    Call call = std::move(found->second);
    channel.inFlight.erase(found);
    --inFlight_;
    if (text.call != call.id) places_.world.violated("a call got another's answer");
    conclude(std::move(call), RequestOutcome::kAnswered);
  }
}

void SimulatedClient::watchDeadlines(uint64_t epoch, Channel& channel) {
  for (auto next = channel.inFlight.begin(); next != channel.inFlight.end();) {
    const auto entry = next++;
    if (!entry->second.deadline || places_.world.now() < *entry->second.deadline) continue;
    const uint64_t sequence = entry->first;
    Call call = std::move(entry->second);
    channel.inFlight.erase(entry);
    --inFlight_;
    channel.abandoned.insert(sequence);
    const RequestOutcome outcome = client::outcomeAtDeadline(channel.end->recall(sequence));
    if (outcome == RequestOutcome::kOverdue && plan_.shared) {
      send(ipc::ReportOverdue{epoch, sequence});
    } else if (outcome == RequestOutcome::kOverdue) {
      places_.processes.kill(channel.pidfd);
    }
    conclude(std::move(call), outcome);
  }
}

// Reports a living worker as dead, as libisopool does when it misreads a ring, or a program that
// wants to harm others. Only for shared workers: a client may end the worker of its private pool.
// No more often than the supervisor tolerates.
void SimulatedClient::reportFalsely(uint64_t epoch) {
  if (!plan_.shared || !places_.world.misfortune(places_.misfortunes.clientReportsTheLiving))
    return;
  if (++falseReports_[epoch] > 2) return;
  places_.world.note("reports falsely", epoch);
  send(ipc::ReportDeath{epoch, "it sleeps on though it was called"});
}

void SimulatedClient::noticeDeath(uint64_t epoch, Channel& channel) {
  if (channel.dead || !ipc::livenessWordOwnerDied(channel.end->peer())) return;
  places_.world.note("sees death", epoch);
  deliver(channel);
  settle(channel);
  send(ipc::ReportDeath{epoch, ""});
}

void SimulatedClient::settle(Channel& channel) {
  channel.dead = true;
  auto settled = std::exchange(channel.inFlight, {});
  inFlight_ -= settled.size();
  for (auto& [sequence, call] : settled) {
    conclude(std::move(call), client::outcomeAtDeath(channel.end->hasStarted(sequence)));
  }
}

void SimulatedClient::conclude(Call call, RequestOutcome outcome) {
  if (places_.misfortunes.clientRepeatsLostCalls && outcome == RequestOutcome::kLost)
    outcome = RequestOutcome::kNeverStarted;
  Ledger& ledger = places_.ledger;
  switch (client::retryDecisionFor(outcome, call.idempotent, /*cancelled=*/false)) {
    case RetryDecision::kAnswer:
      return ledger.ended(call.id, Ending::kAnswered);
    case RetryDecision::kRunElsewhere:
      waiting_.push_back(std::move(call));
      return;
    case RetryDecision::kWorkerLost:
      return ledger.ended(call.id, Ending::kWorkerLost);
    case RetryDecision::kNotStarted:
      return ledger.ended(call.id, Ending::kNotStarted);
    case RetryDecision::kOverdue:
      return ledger.ended(call.id, Ending::kOverdue);
  }
}

// ---- the client's end ------------------------------------------------------------------------

void SimulatedClient::lose(const std::string& reason) {
  failure_ = reason;
  places_.world.note("client lost");
  for (auto& [epoch, channel] : channels_) {
    deliver(channel);
    settle(channel);
  }
  over_ = true;
  for (const Call& call : std::exchange(waiting_, {})) {
    places_.ledger.ended(call.id, Ending::kRefused);
  }
  channels_.clear();
  control_.close();
  package_.close();
}

void SimulatedClient::leave() {
  if (over_) return;
  left_ = true;
  lose("it has left");
}

void SimulatedClient::die() {
  dead_ = over_ = true;
  for (const auto& [epoch, channel] : channels_) {
    for (const auto& [sequence, call] : channel.inFlight) places_.ledger.forgotten(call.id);
  }
  for (const Call& call : waiting_) places_.ledger.forgotten(call.id);
  channels_.clear();
  waiting_.clear();
  control_.close();
  package_.close();
}

}  // namespace isopool::simulation
