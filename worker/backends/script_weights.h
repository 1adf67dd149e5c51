// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Python.h>

#include "worker/memory/weight_sharing.h"

namespace isopool::worker {

/// Shares every tensor of a torch.jit.ScriptModule (WeightSharing::share()): parameters, buffers,
/// attributes of any nesting, and the constants of its code, which is where torch.jit.freeze puts
/// weights. False, and nothing is shared, if `module` is not a ScriptModule. With the GIL. Throws
/// c10::Error.
bool shareScriptWeights(PyObject* module, WeightSharing& sharing);

}  // namespace isopool::worker
