// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>

#include "ipc/memory/memory_object.h"

namespace bench {

/// A second process that does nothing but answer an empty slot of a ring with another: what the
/// kernel and the machine take for a call between processes that has nothing in it. Forks, so it is
/// to be made before the program has threads.
class AnsweringProcess {
 public:
  AnsweringProcess();
  ~AnsweringProcess();
  AnsweringProcess(const AnsweringProcess&) = delete;
  AnsweringProcess& operator=(const AnsweringProcess&) = delete;

  /// Wakes the other one, and sleeps until it has woken us. Throws if it is gone.
  void askAsleep() { ask(/*spinning=*/false); }
  /// The same while both spin. The first one after a pause has to wake the other all the same.
  void askSpinning() { ask(/*spinning=*/true); }

 private:
  struct Ring;
  struct Rings;
  class End;
  void ask(bool spinning);

  isopool::ipc::Mapping memory_;
  Rings* rings_ = nullptr;
  std::unique_ptr<End> end_;
  pid_t other_;
};

}  // namespace bench
