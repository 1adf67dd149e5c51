// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void callMethod(RunningCall& call, ClientLink& channel) {
  PyObject* owner = call.object(channel, 0);
  const PyRef name = call.text(1);
  PyRef method = call.attributeOf(channel, owner, name.get());
  PyRef result = call.callPython(channel, method.get(), 2);
  // A callable attribute may refer to tensors.
  method.reset();
  call.answerResult(channel, std::move(result));
}

}  // namespace isopool::worker::operations
