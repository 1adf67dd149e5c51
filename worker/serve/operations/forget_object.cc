// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void forgetObject(RunningCall& call, ClientLink& channel) {
  const base::ObjectId id(call.reader().integer(0));
  if (channel.objects.forget(id)) call.control().requestCollection();
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
