// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/ids.h"
#include "base/lifeline.h"
#include "base/loop/time_limit.h"
#include "ipc/control/zygote_messages.h"
#include "supervisor/config/options.h"
#include "supervisor/pool/zygote_policy.h"
#include "supervisor/processes/child_process.h"
#include "supervisor/processes/connection.h"
#include "supervisor/processes/processes.h"

namespace isopool::supervisor {

/// How a fork request ended.
struct ForkOutcome {
  enum class Kind {
    kForked,
    kFailed,  ///< the zygote could not fork; `text` is the reason
    kLost     ///< the zygote died before it answered; the lifeline kills what it may have forked
  };
  Kind kind = Kind::kLost;
  pid_t pid = 0;
  std::string text;
};

/// A request for one worker, with the worker's descriptors.
struct ForkRequest {
  base::Epoch epoch;
  base::Fd control;
  base::Fd lifeline;
  base::Fd doorbell;
  base::Fd crashLog;
  base::Fd statusPage;
  base::Fd output;  ///< for its standard streams; invalid: the zygote's
  /// A spare: no caller waits for it.
  bool lowPriority = false;
  /// As in ipc::ForkWorker.
  std::string gpu;
  /// Called once with the outcome, unless the request is withdrawn. From the loop, never from
  /// fork(). May make further requests.
  std::function<void(const ForkOutcome&)> settled;
};

/// Keeps one zygote process running, which forks workers. Replaces a zygote that died, is stopped,
/// or does not answer in time (Options::zygoteTimeout, Options::forkTimeout). Sends it fork
/// requests in order, low-priority ones slightly later than the others; requests that arrive while
/// no zygote is ready wait for the next one, without limit. Not thread-safe: used on the loop's
/// thread. No member blocks.
///
/// When the zygote dies, its workers continue: they are this process's children. Requests that it
/// has not answered get ForkOutcome::Kind::kLost. A zygote that sends an invalid message is killed.
class Zygote {
 public:
  /// Called from the loop. They must not destroy this object.
  struct Events {
    /// A zygote is ready; called again for each successor.
    std::function<void(const ipc::ZygoteReady&)> ready;
    /// The zygote failed before any has been ready: no other is started.
    std::function<void(const std::string& text)> givenUp;
    /// A zygote ended without having forked a worker, as several before it. Restarts continue.
    std::function<void(const std::string& text)> struggling;
    /// The zygote was reaped, or could not be started.
    std::function<void()> reaped;
    /// No fork request is outstanding any more.
    std::function<void()> forksSettled;
  };

  Zygote(base::EventLoop& loop, Processes& processes, const Options& options,
         InheritedLimits limits, Events events);

  /// Starts the zygote. Called once by the owner. An error is treated as the zygote's death.
  void start();
  /// Requests one worker; `request.settled` gets the outcome.
  void fork(ForkRequest request);
  /// Removes a request that is not sent yet and returns true. Returns false if it was sent: its
  /// outcome will follow.
  bool withdraw(base::Epoch epoch);
  /// Kills the zygote and cuts its lifeline. For the supervisor's end: while the loop runs, another
  /// zygote would follow.
  void kill();

  /// 0 if no zygote runs.
  pid_t pid() const;
  /// The running zygote's message; nothing until it is ready.
  const std::optional<ipc::ZygoteReady>& readiness() const { return readiness_; }
  /// True while the zygote has a request that it has not answered.
  bool forksOutstanding() const { return !outstanding_.empty(); }
  /// As ZygotePolicy::struggling().
  bool struggling() const { return policy_.struggling(); }
  /// How many zygotes were started after the first.
  uint64_t restarts() const { return restarts_; }
  /// Why the last zygote that ended did; empty if none has.
  const std::string& lastFailure() const { return lastFailure_; }

 private:
  struct Outstanding {
    base::Epoch epoch;
    std::function<void(const ForkOutcome&)> settled;
  };

  void handle(ipc::Frame& frame);
  void patienceIsOver();
  void sendWaiting();
  void settle(base::Epoch epoch, const ForkOutcome& outcome);
  void awaitAnswer();
  void lookWhetherStoppedSoon();
  void lookWhetherStopped();
  void condemn(const std::string& reason);
  void lost(const std::string& text);

  base::EventLoop& loop_;
  Processes& processes_;
  const Options& options_;
  const InheritedLimits limits_;
  const Events events_;
  ZygotePolicy policy_;

  // Of the running zygote.
  base::Lifeline lifeline_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<ChildProcess> process_;
  std::optional<ipc::ZygoteReady> readiness_;
  std::string condemnation_;  ///< why the supervisor kills it; empty: it does not
  bool stopped_ = false;      ///< the reason is that a signal has stopped it
  bool seenStopped_ = false;  ///< at the last look

  std::deque<ForkRequest> lowPriority_;
  std::deque<ForkRequest> waiting_;
  std::deque<Outstanding> outstanding_;
  base::Timer patience_;
  base::TimeLimit deadline_;
  base::TimeLimit look_;
  base::Timer restart_;
  uint64_t restarts_ = 0;
  std::string lastFailure_;
};

}  // namespace isopool::supervisor
