// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "supervisor/processes/restart_policy.h"

namespace isopool::supervisor {

/// Decides what follows the loss of a zygote. Once a zygote has been ready, there is always
/// another one, after the delays of RestartPolicy and without a quarantine: the workers that exist
/// can serve meanwhile. Pure: the caller passes the time.
class ZygotePolicy {
 public:
  enum class Verdict {
    kGiveUp,         ///< no zygote has ever been ready: the startup failed permanently
    kRetry,          ///< start another after the delay
    kRetryAndReport  ///< the same, and report that workers can't be started at the moment
  };
  enum class Loss {
    kByItself,  ///< it died, failed, or was too slow
    kStopped    ///< the supervisor killed it because a signal had stopped it: not its own failure
  };
  struct Decision {
    Verdict verdict;
    base::Milliseconds delay{0};
  };

  ZygotePolicy();

  /// The zygote is ready: from here on lost() never returns kGiveUp.
  void ready() { everReady_ = true; }
  /// The zygote has forked a worker: its loss is not an early death.
  void forked() { forked_ = true; }
  /// The zygote is lost. Returns what to do, and after which delay.
  Decision lost(base::TimePoint now, Loss loss = Loss::kByItself);

  /// True after three zygotes in a row that forked no worker, until one forks a worker.
  bool struggling() const { return struggling_ && !forked_; }

 private:
  RestartPolicy restarts_;
  bool everReady_ = false;
  bool forked_ = false;
  bool struggling_ = false;
};

}  // namespace isopool::supervisor
