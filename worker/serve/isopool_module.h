// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/ids.h"
#include "worker/memory/copy_counts.h"
#include "worker/python/py_ref.h"
#include "worker/sandbox/sandbox.h"
#include "worker/serve/shown_models.h"

namespace isopool::worker {

/// Makes the built-in module `_isopool`: what our own Python, tests and curious users may ask of
/// the runtime. In a child that user code forked every function raises RuntimeError.
PyObject* createIsopoolModule();

/// From now on the module speaks for this worker. All three must live as long as the process.
void setIsopoolModuleWorker(base::Epoch epoch, const CopyCounts& copies, ShownModels& models,
                            Sandbox& sandbox);

/// True once code has asked for the end of this worker after the call that runs.
bool isToLeave();

}  // namespace isopool::worker
