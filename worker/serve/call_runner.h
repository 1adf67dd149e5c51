// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/memory/control_plane.h"
#include "worker/memory/copy_counts.h"
#include "worker/sandbox/sandbox.h"
#include "worker/serve/client_link.h"
#include "worker/serve/running_call.h"

namespace isopool::worker {

/// Takes one call from a channel, runs its operation in Python, and publishes the answer.
/// One object serves all channels in turn; its buffers are reused. The call loop's thread,
/// with the GIL.
///
/// Errors become answers: a Python exception (kPythonError), a refusal by isopool with its reason
/// (kRefused). If the worker dies during a call, the client sees the marked liveness word and the
/// call is lost.
class CallRunner {
 public:
  /// `copies` counts for the life of the worker. All arguments must outlive this object.
  CallRunner(ControlPlane& control, CopyCounts& copies, Sandbox& sandbox, ShownModels& models);

  enum class Served {
    kNothing,       ///< no request, or the channel is poisoned and was marked detached
    kNotification,  ///< a request without an answer, which runs no user code
    kCall,
  };
  /// Serves the oldest request of the channel and reports what the sandbox forbade.
  Served serveOne(ClientLink& channel);

 private:
  /// Takes the request, resolves its storages, runs it, and turns exceptions into answers.
  void run(ClientLink& channel);
  /// The request's payload: in the slot, or a private copy of a block of the client. Throws Refusal
  /// if the block is not mapped or out of bounds.
  std::span<const std::byte> payload(ClientLink& channel);
  /// Throws Refusal if the client holds as many results as the operator allows it.
  void requireLeases(const ClientLink& channel) const;

  ControlPlane& control_;
  CopyCounts& totalCopies_;  // of the worker's life
  Sandbox& sandbox_;
  std::vector<std::byte> blob_;  // the payload, if it was too long for the slot
  RunningCall call_;
};

}  // namespace isopool::worker
