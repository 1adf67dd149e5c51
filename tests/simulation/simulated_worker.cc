// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/simulated_worker.h"

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "ipc/control/worker_messages.h"

namespace isopool::simulation {

namespace {

constexpr Microseconds kLongestStart(40'000'000);

bool readable(int descriptor) {
  pollfd watched{descriptor, POLLIN, 0};
  return ::poll(&watched, 1, 0) == 1;
}

}  // namespace

SimulatedWorker::SimulatedWorker(const Places& places, pid_t pid, uint64_t epoch,
                                 std::vector<base::Fd> descriptors)
    : places_(places),
      pid_(pid),
      epoch_(epoch),
      control_(std::move(descriptors.at(0))),
      lifeline_(std::move(descriptors.at(1))),
      doorbell_(ipc::mapShared(descriptors.at(2), 0, ipc::kPageBytes, ipc::Access::kReadOnly,
                               ipc::Prefault::kNo)),
      crashLog_(std::move(descriptors.at(3))),
      statusPageObject_(ipc::mapShared(descriptors.at(4), 0, ipc::kPageBytes,
                                       ipc::Access::kReadWrite, ipc::Prefault::kNo)),
      statusPage_(new (statusPageObject_.data()) ipc::WorkerStatusPage) {
  ipc::sealMemoryObject(descriptors.at(4), ipc::Seal::kSingleWriter);
}

void SimulatedWorker::appendDescriptors(std::vector<int>& descriptors) const {
  if (dead_) return;
  descriptors.push_back(lifeline_.get());
  // A worker that runs a call reads nothing.
  if (!running_) descriptors.push_back(control_.fd());
}

bool SimulatedWorker::dies() {
  World& world = places_.world;
  if (!world.misfortune(places_.misfortunes.workerDies)) return false;
  // Some workers close their control socket first: the supervisor notices it before the death.
  if (world.chance.oneIn(4)) control_.close();
  places_.processes.end(pid_, world.chance.oneIn(3) ? supervisor::ExitStatus{.exitCode = 3}
                                                    : supervisor::ExitStatus{.signal = SIGSEGV});
  return true;
}

void SimulatedWorker::act() {
  World& world = places_.world;
  if (!places_.processes.alive(pid_)) return;
  if (readable(lifeline_.get())) return places_.processes.end(pid_, {.signal = SIGKILL});
  if (!control_.valid()) return;  // the worker is dying
  if (!saidReady_) {
    saidReady_ = true;
    if (world.misfortune(places_.misfortunes.workerFailsToStart)) {
      switch (world.chance.below(3)) {
        case 0:
          return places_.processes.end(pid_, {.exitCode = 5});
        case 1:
          saidReady_ = false;
          return later(kLongestStart);
        default:
          control_.send(ipc::WorkerReady{epoch_ + 1}, {}, std::chrono::milliseconds(0));
      }
    }
    control_.send(ipc::WorkerReady{epoch_}, {}, std::chrono::milliseconds(0));
    return later(world.latency());
  }
  if (dies()) return;
  if (running_) {
    if (running_->endless) return;
    if (world.now() < running_->until) return wakeAt(running_->until);
    finishCall();
    return later(world.latency());
  }
  if (world.misfortune(places_.misfortunes.workerSendsNonsense)) {
    [[maybe_unused]] const ssize_t written = ::write(control_.fd(), "this is no frame, is it?", 24);
  }
  // The worker reads its socket or its rings first, depending on whether the message or the call
  // wakes it.
  if (world.chance.oneIn(2) && readControl()) return later(world.latency());
  takeCall();
  if (running_) return wakeAt(running_->endless ? world.now() : running_->until);
  if (readControl()) return later(world.latency());
  for (auto& [client, channel] : channels_) channel.end->announceSleep();
}

bool SimulatedWorker::readControl() {
  ipc::ReceiveResult result = ipc::ReceiveResult::kOk;
  bool any = false;
  while (result == ipc::ReceiveResult::kOk) {
    result = control_.receive();
    while (std::optional<ipc::Frame> frame = control_.next()) {
      handle(*frame);
      if (dead_ || !control_.valid()) return true;
      any = true;
    }
  }
  if (result == ipc::ReceiveResult::kPeerGone) {
    places_.processes.end(pid_, {.exitCode = 0});
    return true;
  }
  return any;
}

void SimulatedWorker::handle(ipc::Frame& frame) {
  const auto send = [this](const auto& message) {
    control_.send(message, {}, std::chrono::milliseconds(0));
  };
  switch (frame.type) {
    case ipc::MessageType::kAttachChannel:
      return attach(frame);
    case ipc::MessageType::kDetachChannel: {
      const uint64_t client = ipc::decodeMessage<ipc::DetachChannel>(frame).client;
      channels_.erase(client);
      send(ipc::ChannelDetached{client});
      return places_.wakeClients();
    }
    case ipc::MessageType::kMapPackage: {
      const auto message = ipc::decodeMessage<ipc::MapPackage>(frame);
      const auto found = channels_.find(message.client);
      if (found == channels_.end()) {
        return places_.world.violated("a worker was notified of a package before its channel");
      }
      found->second.packages.insert(message.package);
      return;
    }
    case ipc::MessageType::kUnmapPackage: {
      const auto message = ipc::decodeMessage<ipc::UnmapPackage>(frame);
      const auto found = channels_.find(message.client);
      if (found == channels_.end()) return;
      for (const uint32_t package : message.packages) found->second.packages.erase(package);
      return;
    }
    case ipc::MessageType::kUnmapInputSegment: {
      const auto message = ipc::decodeMessage<ipc::UnmapInputSegment>(frame);
      return send(ipc::InputSegmentUnmapped{message.client, message.segment});
    }
    default:
      return;
  }
}

void SimulatedWorker::attach(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::AttachChannel>(frame);
  places_.world.note("attaches", epoch_, message.client);
  const base::Fd& own = frame.descriptors.at(1);
  Channel& channel = channels_[message.client];
  channel.kernelsView =
      ipc::mapShared(own, 0, ipc::kPageBytes, ipc::Access::kReadWrite, ipc::Prefault::kNo);
  ipc::Mapping mapping =
      ipc::mapShared(own, 0, ipc::kWorkerControlBytes, ipc::Access::kReadWrite, ipc::Prefault::kNo);
  ipc::sealMemoryObject(own, ipc::Seal::kSingleWriter);
  channel.end = std::make_unique<ipc::WorkerEnd>(
      base::Epoch(epoch_), std::move(mapping),
      ipc::mapShared(frame.descriptors.at(0), 0, ipc::kClientControlBytes, ipc::Access::kReadOnly,
                     ipc::Prefault::kNo));
  channel.end->attach();
  if (dies()) return;
  control_.send(ipc::ChannelAttached{message.client}, {}, std::chrono::milliseconds(0));
  if (places_.world.misfortune(10)) {
    control_.send(ipc::RequestOutputSegment{message.client, ipc::kPageBytes}, {},
                  std::chrono::milliseconds(0));
  }
}

void SimulatedWorker::takeCall() {
  World& world = places_.world;
  std::vector<uint64_t> ready;
  for (auto& [client, channel] : channels_) {
    channel.end->withdrawSleep();
    if (channel.end->callReady()) ready.push_back(client);
  }
  if (ready.empty()) return;
  const uint64_t client = ready[world.chance.below(ready.size())];
  Channel& channel = channels_.at(client);
  ipc::ReceivedCall call;
  if (channel.end->peek(call) != ipc::Received::kOne) {
    return world.violated("a worker found invalid content in a ring of an honest client");
  }
  CallText text;
  std::memcpy(&text, call.bytes, sizeof text);
  // If the call needs a package, the worker first reads its socket until it has the package.
  if (text.package != 0 && channel.packages.count(text.package) == 0) return;
  statusPage_->runningSince.store(world.now().time_since_epoch().count());
  statusPage_->lastClient.store(client);
  statusPage_->runningClient.store(client);
  if (dies()) return;
  channel.end->taken();
  if (dies()) return;
  const bool runs = channel.end->start(call.sequence) == ipc::Start::kRun;
  if (!runs && !places_.misfortunes.workerRunsRecalledCalls) {
    channel.end->complete(call.sequence, ipc::CompletionStatus::kWithdrawn, {},
                          ipc::Work::kUncounted);
    statusPage_->runningClient.store(0);
    places_.wakeClients();
    return later(world.latency());
  }
  places_.ledger.ran(text.call);
  if (text.barren != 0 && world.storm()) {
    return places_.processes.end(pid_, {.signal = SIGSEGV});
  }
  const bool endless = text.microseconds < 0;
  running_ = {client, call.sequence, text, endless,
              world.now() + Microseconds(endless ? 0 : text.microseconds)};
}

void SimulatedWorker::finishCall() {
  const Running done = *running_;
  running_.reset();
  Channel& channel = channels_.at(done.client);
  ipc::OutgoingPayload payload;
  payload.inlineBytes = std::as_bytes(std::span(&done.text, 1));
  channel.end->complete(done.sequence, ipc::CompletionStatus::kValue, payload);
  places_.lives.served(epoch_);
  if (dies()) return;
  statusPage_->runningClient.store(0);
  places_.wakeClients();
}

void SimulatedWorker::die() {
  dead_ = true;
  places_.lives.endedBy(statusPage_->lastClient.load());
  for (auto& [client, channel] : channels_) {
    channel.end.reset();
    // Marks the liveness word like the kernel, which marks the robust futexes of an ending thread.
    auto* control = reinterpret_cast<ipc::WorkerControl*>(channel.kernelsView.data());
    auto& life = reinterpret_cast<ipc::SharedWord<uint32_t>&>(control->life);
    life.fetch_or(FUTEX_OWNER_DIED);
  }
  channels_.clear();
  control_.close();
  lifeline_.close();
  places_.wakeClients();
}

}  // namespace isopool::simulation
