// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "ipc/control/frame.h"
#include "ipc/control/zygote_messages.h"
#include "worker/memory/routed_blocks.h"
#include "worker/process/process_setup.h"
#include "worker/sandbox/sandbox.h"

namespace isopool::worker {

/// Checks the sandbox settings of this process's environment as a zygote would. Throws
/// std::runtime_error with the reason if a zygote would refuse them. Starts Python, but does
/// not import torch.
void checkSandboxOfZygotes();

/// The modules that a package takes from the workers' Python and that a zygote imports only if
/// ISOPOOL_PRELOAD_MODULES names them: a text with the time of each import and that setting. Starts
/// Python and imports torch and these modules. Throws std::runtime_error if that fails, or if the
/// file is not a package.
std::string preloadsOf(const std::string& file);

/// The process that workers are forks of. It imports torch and the preload list once and then only
/// forks; it never has more than one thread, because a fork copies only one. Its parent is the
/// supervisor. A worker becomes the supervisor's child by a second fork, whose middle process (a
/// vfork) exits at once. The zygote runs no user code except the preload list, and never uses CUDA.
///
/// The middle process runs in the zygote's memory: if it is killed, the zygote ends, and another
/// one follows.
///
/// If the supervisor dies, the kernel kills the zygote's process group through the lifeline.
class Zygote {
 public:
  /// `control` is a stream socket to the supervisor. `lifeline` is the read end of a pipe whose
  /// only write end the supervisor holds. Makes this process the leader of a process group of its
  /// own. Throws SystemCallError.
  Zygote(base::Fd control, base::Fd lifeline);

  /// Serves fork requests until the supervisor closes the socket. Returns the exit status: 0, or 1
  /// if the start failed, after a ZygoteFailed message with the reason.
  int run();

 private:
  void prepare();
  void forkWorker(ipc::Frame& frame);
  /// Returns the worker's pid; nullopt if the fork failed, with the reason in `reason`.
  std::optional<pid_t> forkTwice(const ipc::ForkWorker& order, WorkerDescriptors& descriptors,
                                 std::string& reason);

  ipc::ControlSocket control_;
  base::Fd lifeline_;
  RoutedBlocks& blocks_;
  SandboxPlan sandbox_;
  /// Shared page in which the middle process stores the worker's pid, or the negative
  /// errno of fork().
  ipc::Mapping pidWord_;
};

}  // namespace isopool::worker
