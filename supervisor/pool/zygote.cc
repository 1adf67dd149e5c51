// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/zygote.h"

#include <sys/random.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log/log.h"
#include "base/system_call.h"
#include "ipc/crash_point.h"

namespace isopool::supervisor {

namespace {

// Delay of the forks of spares. After a spare has taken a dead worker's slot, a caller waits for
// its first answer. Meanwhile the next spare must not compete for processors and memory bandwidth:
// it makes the calls of ReplicatedObj::warmUp(), which read all weights of a model.
constexpr base::Milliseconds kPatience(200);
// How often the supervisor checks whether a zygote that has not answered is stopped by a signal.
constexpr base::Milliseconds kStoppedLook(100);

uint64_t randomSeed() {
  uint64_t seed = 0;
  [[maybe_unused]] const ssize_t bytes = ::getrandom(&seed, sizeof seed, 0);
  return seed;
}

}  // namespace

Zygote::Zygote(base::EventLoop& loop, Processes& processes, const Options& options,
               InheritedLimits limits, Events events)
    : loop_(loop),
      processes_(processes),
      options_(options),
      limits_(std::move(limits)),
      events_(std::move(events)),
      patience_(loop),
      deadline_(loop),
      look_(loop),
      restart_(loop) {}

void Zygote::start() {
  condemnation_.clear();
  stopped_ = false;
  seenStopped_ = false;
  try {
    auto [ours, theirs] = ipc::ControlSocket::makePair();
    base::Fd lifelineEnd;
    lifeline_ = base::Lifeline::make(lifelineEnd);
    const pid_t pid = processes_.startZygote(options_.worker, options_.workerEnvironment, theirs,
                                             lifelineEnd, limits_);
    ipc::reachCrashPoint(ipc::CrashPoint::kZygoteSpawned);
    process_ =
        std::make_unique<ChildProcess>(loop_, processes_, pid, [this](const ExitStatus& status) {
          connection_->readNow();  // its last messages: the reason, or answers to requests
          lost(condemnation_.empty() ? "the zygote " + status.describe() : condemnation_);
        });
    connection_ = std::make_unique<Connection>(
        loop_, std::move(ours),
        Connection::Events{.frame = [this](ipc::Frame& frame) { handle(frame); },
                           .over =
                               [this](const std::string& reason) {
                                 if (!reason.empty())
                                   condemn("the zygote broke the protocol: " + reason);
                                 process_->killSoon();
                               },
                           .sent = nullptr});
  } catch (const base::SystemCallError& error) {
    return lost(std::string("the zygote could not be started: ") + error.what());
  }
  deadline_.setAfter(options_.zygoteTimeout, [this] {
    condemn("the zygote was not ready within " + std::to_string(options_.zygoteTimeout.count()) +
            " ms (ISOPOOL_ZYGOTE_TIMEOUT)");
  });
  lookWhetherStoppedSoon();
}

void Zygote::fork(ForkRequest request) {
  if (request.lowPriority) {
    lowPriority_.push_back(std::move(request));
    if (lowPriority_.size() == 1) patience_.setAfter(kPatience, [this] { patienceIsOver(); });
    return;
  }
  waiting_.push_back(std::move(request));
  sendWaiting();
}

void Zygote::patienceIsOver() {
  std::move(lowPriority_.begin(), lowPriority_.end(), std::back_inserter(waiting_));
  lowPriority_.clear();
  sendWaiting();
}

bool Zygote::withdraw(base::Epoch epoch) {
  const auto isIts = [&](const ForkRequest& each) { return each.epoch == epoch; };
  return std::erase_if(lowPriority_, isIts) + std::erase_if(waiting_, isIts) > 0;
}

void Zygote::kill() {
  lifeline_.cut();
  if (process_ != nullptr) process_->kill();
}

pid_t Zygote::pid() const { return process_ != nullptr ? process_->pid() : 0; }

void Zygote::handle(ipc::Frame& frame) {
  switch (frame.type) {
    case ipc::MessageType::kZygoteReady:
      readiness_ = ipc::decodeMessage<ipc::ZygoteReady>(frame);
      policy_.ready();
      deadline_.cancel();
      look_.cancel();
      ipc::reachCrashPoint(ipc::CrashPoint::kZygoteSeenReady);
      events_.ready(*readiness_);
      return sendWaiting();
    case ipc::MessageType::kZygoteFailed:
      return condemn(ipc::decodeMessage<ipc::ZygoteFailed>(frame).text);
    case ipc::MessageType::kWorkerForked: {
      const auto forked = ipc::decodeMessage<ipc::WorkerForked>(frame);
      if (!processes_.isNewChild(forked.processId)) {
        throw ipc::ProtocolError("WorkerForked names process " + std::to_string(forked.processId) +
                                 ", which is not a new child of isopoold");
      }
      policy_.forked();
      return settle(base::Epoch(forked.epoch),
                    {.kind = ForkOutcome::Kind::kForked, .pid = forked.processId, .text = {}});
    }
    case ipc::MessageType::kForkFailed: {
      auto failed = ipc::decodeMessage<ipc::ForkFailed>(frame);
      return settle(base::Epoch(failed.epoch),
                    {.kind = ForkOutcome::Kind::kFailed, .pid = 0, .text = std::move(failed.text)});
    }
    default:
      throw ipc::ProtocolError("unexpected message of type " +
                               std::to_string(static_cast<uint32_t>(frame.type)));
  }
}

void Zygote::sendWaiting() {
  if (!readiness_ || waiting_.empty()) return;
  if (outstanding_.empty()) awaitAnswer();
  for (; !waiting_.empty(); waiting_.pop_front()) {
    ForkRequest& request = waiting_.front();
    const ipc::ForkWorker message{request.epoch.value, randomSeed(), request.gpu,
                                  !options_.privatePool};
    if (request.output.valid()) {
      connection_->send(message,
                        {request.control.get(), request.lifeline.get(), request.doorbell.get(),
                         request.crashLog.get(), request.statusPage.get(), request.output.get()});
    } else {
      connection_->send(message,
                        {request.control.get(), request.lifeline.get(), request.doorbell.get(),
                         request.crashLog.get(), request.statusPage.get()});
    }
    outstanding_.push_back({request.epoch, std::move(request.settled)});
    ipc::reachCrashPoint(ipc::CrashPoint::kForkRequestSent);
  }
}

void Zygote::settle(base::Epoch epoch, const ForkOutcome& outcome) {
  const auto found = std::find_if(outstanding_.begin(), outstanding_.end(),
                                  [&](const Outstanding& each) { return each.epoch == epoch; });
  if (found == outstanding_.end()) throw ipc::ProtocolError("an answer to an unknown fork request");
  const auto settled = std::move(found->settled);
  outstanding_.erase(found);
  awaitAnswer();
  settled(outcome);
  ipc::reachCrashPoint(ipc::CrashPoint::kForkSettled);
  if (outstanding_.empty()) events_.forksSettled();
}

// The zygote forks one worker after the other: each answer starts the time-out again.
void Zygote::awaitAnswer() {
  if (outstanding_.empty() && waiting_.empty()) {
    look_.cancel();
    return deadline_.cancel();
  }
  lookWhetherStoppedSoon();
  deadline_.setAfter(options_.forkTimeout, [this] {
    condemn("the zygote forked no worker within " + std::to_string(options_.forkTimeout.count()) +
            " ms (ISOPOOL_FORK_TIMEOUT)");
  });
}

void Zygote::lookWhetherStoppedSoon() {
  // With no_kill a debugger may have stopped the zygote.
  if (!options_.noKill) look_.setAfter(kStoppedLook, [this] { lookWhetherStopped(); });
}

// A zygote that a signal has stopped will not answer within the time-out, while callers wait: it is
// replaced earlier. Not if it is stopped at one look only: perhaps all processes were stopped, and
// it is continued after this one.
void Zygote::lookWhetherStopped() {
  if (process_ == nullptr || (readiness_ && outstanding_.empty())) return;
  const bool stopped = processes_.conditionOf(process_->pid()) == Processes::Condition::kStopped;
  if (std::exchange(seenStopped_, stopped) && stopped) {
    stopped_ = true;
    return condemn("the zygote was stopped by a signal");
  }
  lookWhetherStoppedSoon();
}

void Zygote::condemn(const std::string& reason) {
  if (condemnation_.empty()) condemnation_ = reason;
  process_->kill();
}

void Zygote::lost(const std::string& text) {
  lastFailure_ = text;
  deadline_.cancel();
  look_.cancel();
  lifeline_.cut();
  connection_.reset();
  process_.reset();
  readiness_.reset();
  const ZygotePolicy::Decision decision = policy_.lost(
      loop_.now(), stopped_ ? ZygotePolicy::Loss::kStopped : ZygotePolicy::Loss::kByItself);
  if (decision.verdict == ZygotePolicy::Verdict::kGiveUp) {
    base::log(base::LogLevel::kError, text);
    return events_.givenUp(text);
  }
  base::log(base::LogLevel::kWarning, text + "; another zygote is started");
  restart_.setAfter(decision.delay, [this] {
    ++restarts_;
    start();
  });
  // The owners of these requests send new ones, for the next zygote.
  for (const Outstanding& each : std::exchange(outstanding_, {})) {
    each.settled({ForkOutcome::Kind::kLost, 0, text});
  }
  events_.reaped();
  if (decision.verdict == ZygotePolicy::Verdict::kRetryAndReport) events_.struggling(text);
}

}  // namespace isopool::supervisor
