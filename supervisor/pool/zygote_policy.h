// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "supervisor/processes/restart_policy.h"

namespace isopool::supervisor {

/// Decides what follows the loss of a zygote. Pure: the caller brings the time.
class ZygotePolicy {
 public:
  enum class Verdict {
    kGiveUp,         ///< none has ever been ready: this environment cannot work
    kRetry,          ///< start another after the delay
    kRetryAndReport  ///< the same, but several in a row came to nothing: workers can't be had now
  };
  enum class Loss {
    kByItself,  ///< it died, failed, or was too slow
    kStopped  ///< we killed it because another process had stopped it: no fault of the environment
  };
  struct Decision {
    Verdict verdict;
    base::Milliseconds delay{0};
  };

  ZygotePolicy();

  void ready() { everReady_ = true; }
  void forked() { forked_ = true; }
  Decision lost(base::TimePoint now, Loss loss = Loss::kByItself);

  /// True from the third early zygote in a row until one forks a worker.
  bool struggling() const { return struggling_ && !forked_; }

 private:
  RestartPolicy restarts_;
  bool everReady_ = false;
  bool forked_ = false;
  bool struggling_ = false;
};

}  // namespace isopool::supervisor
