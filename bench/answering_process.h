// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>

#include "ipc/memory/memory_object.h"

namespace bench {

/// A second process that only answers an empty slot of a ring with another one: the time that the
/// kernel and the machine need for an empty call between processes. The constructor forks: call it
/// before the program has threads.
class AnsweringProcess {
 public:
  AnsweringProcess();
  ~AnsweringProcess();
  AnsweringProcess(const AnsweringProcess&) = delete;
  AnsweringProcess& operator=(const AnsweringProcess&) = delete;

  /// Wakes the other process and sleeps until that process wakes this one. Throws if it is gone.
  void askAsleep() { ask(/*spinning=*/false); }
  /// The same while both processes spin. After a pause the first call has to wake the other
  /// process.
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
