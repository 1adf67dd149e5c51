// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "ipc/channel/layout.h"
#include "ipc/memory/memory_object.h"

namespace bench {

/// A second process that does nothing but sleep and wake us back: what the kernel and the machine
/// take for the two wake-ups of a call between processes of which none spins. Forks, so it is to be
/// made before the program has threads.
class WakePair {
 public:
  WakePair();
  ~WakePair();
  WakePair(const WakePair&) = delete;
  WakePair& operator=(const WakePair&) = delete;

  /// Wakes the other one, and sleeps until it has woken us. Throws if it is gone.
  void wakeAndBeWoken();

 private:
  struct Words;
  isopool::ipc::Mapping memory_;
  Words* words_;
  pid_t other_;
  uint32_t turn_ = 0;
};

}  // namespace bench
