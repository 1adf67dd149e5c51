// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/death_origin.h"

#include <algorithm>

#include "ipc/channel/status_page.h"
#include "supervisor/pool/printable.h"

namespace isopool::supervisor {

DeathOrigin originOf(const WorkerStatus& status, const std::vector<ClientId>& served) {
  using Kind = DeathOrigin::Kind;
  const uint64_t named = status.runningClient != 0 ? status.runningClient : status.lastClient;
  if (named == 0) return {};
  const bool ran = status.runningClient != 0;
  const ClientId client(named);
  DeathOrigin origin;
  if (std::find(served.begin(), served.end(), client) != served.end()) {
    origin.kind = ran ? Kind::kCall : Kind::kIdle;
    origin.clients = {client};
    origin.model = printable(status.model, ipc::kShownNameBytes);
  } else if (ran) {
    origin.kind = Kind::kInvalid;
    origin.clients = served;
  } else {
    origin.kind = Kind::kLeft;
  }
  return origin;
}

}  // namespace isopool::supervisor
