// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ipc/memory/memory_object.h"
#include "worker/python/py_ref.h"

/// Python capsules that hold the mapping of a package or of a moved object's memory. With the GIL.
namespace isopool::worker {

/// Makes a capsule that shares ownership of the mapping; null with a Python error set if memory is
/// short. `shared`: the mapping is a moved object's memory, which may be written.
PyRef makePackageCapsule(std::shared_ptr<const ipc::Mapping> mapping, bool shared);

// User code can get hold of a capsule and pass any object to these two.

/// The mapping in a capsule of either kind; null with a Python error set for any other object.
std::shared_ptr<const ipc::Mapping> packageMapping(PyObject* capsule);
/// The mapping in a capsule of a moved object's memory; else null with a Python error set.
std::shared_ptr<const ipc::Mapping> movedObjectMapping(PyObject* capsule);

}  // namespace isopool::worker
