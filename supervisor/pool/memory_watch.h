// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/loop/timer.h"
#include "base/weak_self.h"
#include "supervisor/pool/services.h"

namespace isopool::supervisor {

/// Why a worker has more memory than sandbox.memory allows it and the processes of its user code
/// together; empty if it has not. The kernel enforces RLIMIT_DATA for each process alone and does
/// not count all of its memory: not stacks (MAP_GROWSDOWN), and not memory that has been made
/// read-only.
std::string whyTooMuchMemory(const Processes::Tree& tree);

/// Looks at the memory of the workers of a group, with that of the processes that their user code
/// has started: once a second, and ten times a second while a worker runs a call or user code has
/// processes. Runs only while sandbox.memory is set and there are workers. Not thread-safe: used on
/// the loop's thread; reads /proc in the background.
class MemoryWatch {
 public:
  struct Subject {
    base::Epoch worker;
    pid_t pid = 0;
    bool busy = false;  ///< it runs a call
  };
  struct Events {
    /// The workers to look at.
    std::function<std::vector<Subject>()> subjects;
    /// The worker, which may be gone meanwhile, has too much memory.
    std::function<void(base::Epoch, const std::string& why)> tooMuch;
  };

  MemoryWatch(Services& services, Events events);

  /// There is a worker to look at. Does nothing if the watch runs already.
  void begin();
  void end();

 private:
  using Trees = std::vector<std::pair<base::Epoch, Processes::Tree>>;

  void look();
  void judge(const Trees& trees, bool busy);

  Services& services_;
  const Events events_;
  bool looking_ = false;
  base::Timer timer_;
  /// Weak handle to this object for callbacks that are still pending: they may outlive it.
  base::WeakSelf<MemoryWatch> self_;
};

}  // namespace isopool::supervisor
