// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/transport/request_draft.h"

namespace isopool {

class ReplicatedObjImpl;

namespace client {

/// A call that every worker makes before it takes the pool's calls. Constant; copies share the
/// tensors of the arguments.
struct WarmUpCall {
  std::weak_ptr<ReplicatedObjImpl> object;
  std::string method;  ///< empty: the object itself
  std::vector<at::IValue> args;
  NamedArguments kwargs;
  uint32_t modes = 0;  ///< of the caller, see callerModes()
};

}  // namespace client
}  // namespace isopool
