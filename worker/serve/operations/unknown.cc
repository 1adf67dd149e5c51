// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"

namespace isopool::worker::operations {

void refuseUnknown(RunningCall& /*call*/, ClientLink& /*channel*/) {
  badRequest("the call asks for an unknown operation");
}

}  // namespace isopool::worker::operations
