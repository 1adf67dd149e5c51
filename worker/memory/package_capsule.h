// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ipc/memory/memory_object.h"
#include "worker/python/py_ref.h"

/// The mapping of a package, or of a moved object's memory, in Python's hands.
namespace isopool::worker {

/// A capsule that owns the mapping; null with a Python error set if there is no memory for it.
/// `shared`: it is a moved object's memory, which may be written.
PyRef makePackageCapsule(std::shared_ptr<const ipc::Mapping> mapping, bool shared);

/// The mapping in a capsule of either kind; null with a Python error set if it is none.
std::shared_ptr<const ipc::Mapping> packageMapping(PyObject* capsule);
/// The mapping in a capsule of a moved object's memory; else null with a Python error set.
std::shared_ptr<const ipc::Mapping> movedObjectMapping(PyObject* capsule);

}  // namespace isopool::worker
