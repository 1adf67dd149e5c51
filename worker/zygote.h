// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "ipc/control/frame.h"
#include "worker/memory/routed_blocks.h"
#include "worker/process/process_setup.h"
#include "worker/sandbox/sandbox.h"

namespace isopool::worker {

/// Throws std::runtime_error that says what a zygote with this environment would refuse of its
/// sandbox settings. Starts Python, but imports no torch.
void checkSandboxOfZygotes();

/// The process that workers are copies of: imports once, then only forks, one thread for ever. Its
/// parent is the supervisor; a worker becomes the supervisor's child by a second fork whose middle
/// process, a vfork, ends at once. Runs no user code but the preload list, and never touches CUDA.
class Zygote {
 public:
  /// `lifeline` is the read end of a pipe whose only write end the supervisor holds.
  Zygote(base::Fd control, base::Fd lifeline);

  /// Serves until the supervisor is gone; returns the exit status.
  int run();

 private:
  void prepare();
  void forkWorker(ipc::Frame& frame);
  /// The worker's pid, or the reason why there is none.
  std::optional<pid_t> forkTwice(const ipc::ForkWorker& order, WorkerDescriptors& descriptors,
                                 std::string& reason);

  ipc::ControlSocket control_;
  base::Fd lifeline_;
  RoutedBlocks& blocks_;
  SandboxPlan sandbox_;
  /// Where the middle process tells the pid of the worker.
  ipc::Mapping pidWord_;
};

}  // namespace isopool::worker
