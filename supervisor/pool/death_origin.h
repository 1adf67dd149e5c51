// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "supervisor/pool/client_id.h"
#include "supervisor/pool/worker_status.h"

namespace isopool::supervisor {

/// Whose code was running when a worker of several clients died, or ran last.
struct DeathOrigin {
  enum class Kind {
    kNone,     ///< no client's code has run there
    kCall,     ///< a request of the client ran: a load, a call, a warm-up, an unload
    kIdle,     ///< no request ran; the client's code ran last, or its objects were dropped
    kLeft,     ///< no request ran; the client whose code ran last has left the worker
    kInvalid,  ///< the status page names a client that the worker does not serve
  };

  Kind kind = Kind::kNone;
  /// The client; with kInvalid all that the worker serves: code of one of them has overwritten the
  /// page. Empty with kNone and kLeft.
  std::vector<ClientId> clients;
  std::string model;  ///< whose call ran, or was the last one; printable; empty: of no model
};

/// What the status page of a worker says, checked against the clients that it serves. The page is
/// written by the worker: user code that controls this process can name another of `served`, and no
/// other client.
DeathOrigin originOf(const WorkerStatus& status, const std::vector<ClientId>& served);

}  // namespace isopool::supervisor
