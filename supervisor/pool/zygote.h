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
#include "base/loop/timer.h"
#include "ipc/control/messages.h"
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
    kFailed,  ///< the zygote said no
    kLost     ///< the zygote died with the request; whatever it forked for it is cut off
  };
  Kind kind = Kind::kLost;
  pid_t pid = 0;
  std::string text;
};

struct ForkRequest {
  base::Epoch epoch;
  base::Fd control;
  base::Fd lifeline;
  base::Fd doorbell;
  base::Fd crashLog;
  base::Fd statusPage;
  /// A spare: nobody waits for it.
  bool lowPriority = false;
  /// Called once, unless the request is withdrawn.
  std::function<void(const ForkOutcome&)> settled;
};

/// The process that forks workers, and its successors: keeps one running, replaces one that died or
/// does not answer, and sends it fork requests in order, low-priority ones a little later than the
/// others. Requests that come while there is none wait for the next. Not thread-safe.
class Zygote {
 public:
  struct Events {
    std::function<void(const ipc::ZygoteReady&)> ready;
    /// No zygote has ever become ready: there is nothing to hope for.
    std::function<void(const std::string& text)> givenUp;
    /// Several in a row came to nothing. It goes on trying.
    std::function<void(const std::string& text)> struggling;
    /// The zygote was reaped.
    std::function<void()> reaped;
    /// No fork is outstanding any more.
    std::function<void()> forksSettled;
  };

  Zygote(base::EventLoop& loop, Processes& processes, const Options& options,
         InheritedLimits limits, Events events);

  void start();
  void fork(ForkRequest request);
  /// True if the request had not been sent: it is forgotten. Otherwise its outcome will come.
  bool withdraw(base::Epoch epoch);
  void kill();

  /// 0 if there is none at the moment.
  pid_t pid() const;
  /// What the running one said, once ready.
  const std::optional<ipc::ZygoteReady>& readiness() const { return readiness_; }
  bool forksOutstanding() const { return !outstanding_.empty(); }
  bool struggling() const { return policy_.struggling(); }
  uint64_t restarts() const { return restarts_; }
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

  // The running one.
  base::Lifeline lifeline_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<ChildProcess> process_;
  std::optional<ipc::ZygoteReady> readiness_;
  std::string condemnation_;  ///< why we are killing it
  bool stopped_ = false;      ///< that is why

  std::deque<ForkRequest> lowPriority_;
  std::deque<ForkRequest> waiting_;
  std::deque<Outstanding> outstanding_;
  base::Timer patience_;
  base::Timer deadline_;
  base::Timer look_;
  base::Timer restart_;
  uint64_t restarts_ = 0;
  std::string lastFailure_;
};

}  // namespace isopool::supervisor
