// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/worker.h"

#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cstddef>
#include <utility>

#include "ipc/channel/layout.h"
#include "ipc/memory/memory_object.h"
#include "ipc/system_call.h"

namespace isopool::supervisor {

Worker::Worker(Services& services, ipc::Epoch epoch, Events events)
    : services_(services),
      epoch_(epoch),
      events_(std::move(events)),
      lastWords_(ipc::createGrowingMemoryObject("isopool:last-words")),
      deadline_(services.io),
      self_(std::make_shared<Worker*>(this)) {
  auto [ours, theirs] = ipc::ControlSocket::makePair();
  ipc::Fd lifelineEnd;
  lifeline_ = Lifeline::make(lifelineEnd);
  connection_ = std::make_unique<Connection>(
      services.io, std::move(ours),
      Connection::Events{[this](ipc::Frame& frame) { handle(frame); },
                         [this](const std::string& reason) { controlOver(reason); },
                         [this] { bell_.ring(); }});
  requestFork(std::move(theirs), std::move(lifelineEnd));
  services_.stock.expectWorker();
}

Worker::~Worker() = default;

void Worker::requestFork(ipc::Fd control, ipc::Fd lifelineEnd) {
  ForkRequest request;
  request.epoch = epoch_;
  request.control = std::move(control);
  request.lifeline = std::move(lifelineEnd);
  request.bell = bell_.descriptor();
  request.lastWords = lastWords_.duplicate();
  request.settled = [self = std::weak_ptr(self_)](const ForkOutcome& outcome) {
    if (const auto alive = self.lock()) (*alive)->forkSettled(outcome);
  };
  services_.zygote.fork(std::move(request));
}

void Worker::forkSettled(const ForkOutcome& outcome) {
  forkSettled_ = true;
  if (outcome.kind == ForkOutcome::Kind::kForked) {
    try {
      process_ = std::make_unique<ChildProcess>(services_.io, outcome.pid,
                                                [this](const ExitStatus& status) {
                                                  connection_->readNow();
                                                  lose("it " + status.describe());
                                                  events_.gone(status);
                                                });
    } catch (const ipc::SystemCallError& error) {
      lose(error.what());
      return goneSoon();
    }
    if (stage_ == Stage::kDying) return process_->kill();
    stage_ = Stage::kStarting;
    expectWithinTimeout("to start");
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
  if (!memory_.workerControl.valid()) services_.stock.cancelExpectation();
  deadline_.cancel();
}

void Worker::setMemory(ChannelMemory memory) {
  memory_ = std::move(memory);
  outputBytes_ = memory_.outputBytes;
  lastSegment_ = 1;
}

void Worker::introduced() {
  stage_ = Stage::kIntroduced;
  wasIntroduced_ = true;
  deadline_.cancel();  // from here on it is the client's turn, who may be stopped
}

void Worker::attach(uint64_t client) {
  client_ = client;
  stage_ = Stage::kAttaching;
  send(ipc::AttachChannel{epoch_.value, client, memory_.outputBytes},
       {memory_.clientControl.get(), memory_.workerControl.get(), memory_.output.get()});
  memory_.clientControl.close();
  memory_.output.close();
  expectWithinTimeout("to attach its channel");
}

std::optional<uint32_t> Worker::reserveSegment(uint64_t bytes, uint64_t limit) {
  if (bytes > limit || outputBytes_ > limit - bytes) return std::nullopt;
  outputBytes_ += bytes;
  return ++lastSegment_;
}

uint64_t Worker::sharedBytes() const {
  if (!memory_.workerControl.valid()) return ipc::kPageBytes;
  return ipc::kPageBytes + ipc::kClientControlBytes + ipc::kWorkerControlBytes + outputBytes_;
}

uint64_t Worker::completedCalls() const {
  uint64_t calls = 0;
  const auto offset = static_cast<off_t>(offsetof(ipc::WorkerControl, completedCalls));
  if (!memory_.workerControl.valid() ||
      ::pread(memory_.workerControl.get(), &calls, sizeof calls, offset) != sizeof calls) {
    return 0;
  }
  return calls;
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
    case ipc::MessageType::kChannelAttached:
      if (stage_ != Stage::kAttaching ||
          ipc::decodeMessage<ipc::ChannelAttached>(frame).client != client_) {
        throw ipc::ProtocolError("ChannelAttached for no such channel");
      }
      deadline_.cancel();
      stage_ = Stage::kUsable;
      return events_.attached();
    case ipc::MessageType::kRequestOutputSegment: {
      const auto request = ipc::decodeMessage<ipc::RequestOutputSegment>(frame);
      if (stage_ < Stage::kAttaching || request.client != client_) {
        throw ipc::ProtocolError("RequestOutputSegment for no such channel");
      }
      return events_.segmentWanted(request.bytes);
    }
    default:
      throw ipc::ProtocolError("a worker sends no message of type " +
                               std::to_string(static_cast<uint32_t>(frame.type)));
  }
}

void Worker::becomeReady() {
  stage_ = Stage::kReady;
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
  process_->killSoon();
  events_.lost("it closed its control socket");
}

void Worker::lose(const std::string& reason) {
  if (stage_ == Stage::kDying) return;
  kill();
  events_.lost(reason);
}

void Worker::goneSoon() {
  boost::asio::post(services_.io, [self = std::weak_ptr(self_)] {
    if (const auto alive = self.lock()) (*alive)->events_.gone(std::nullopt);
  });
}

void Worker::expectWithinTimeout(const char* what) {
  deadline_.setAfter(services_.options.workerTimeout, [this, what] {
    lose("it took longer than " + std::to_string(services_.options.workerTimeout.count()) + " ms " +
         what + " (ISOPOOL_WORKER_TIMEOUT)");
  });
}

}  // namespace isopool::supervisor
