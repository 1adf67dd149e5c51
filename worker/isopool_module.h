// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "base/ids.h"
#include "ipc/memory/memory_object.h"
#include "worker/copy_counts.h"
#include "worker/py_ref.h"

namespace isopool::worker {

/// Makes the built-in module `_isopool`: what our own Python, tests and curious users may ask of the
/// runtime. In a child that user code forked every function raises RuntimeError.
PyObject* createIsopoolModule();

/// From now on the module speaks for this worker. `copies` must live as long as the process.
void setIsopoolModuleWorker(base::Epoch epoch, const CopyCounts& copies);

/// A package's mapping as Python hands it back to package_tensor(), and if it is `shared` to
/// write_package() and move_storage(); null with an error set.
PyRef makePackageCapsule(std::shared_ptr<const ipc::Mapping> mapping, bool shared);
/// The mapping in such a capsule; null with a Python error set if it is none.
std::shared_ptr<const ipc::Mapping> packageMapping(PyObject* capsule);

}  // namespace isopool::worker
