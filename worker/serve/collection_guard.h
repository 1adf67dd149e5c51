// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Python collects garbage in whichever call allocates, so a destructor of one program's garbage
/// may run in another's call, or after its program has left. While the guard is active, what
/// destructors do to the call loop's thread (floating-point modes, grad and inference mode,
/// contextvars) ends with the collection. One object per process; its thread, with the GIL.
class CollectionGuard {
 public:
  /// Adds a callback to gc.callbacks. `context`: what destructors see in place of the call's
  /// contextvars. To be made before any user code runs. Has no effect if Python refuses it.
  explicit CollectionGuard(PyRef context);
  CollectionGuard(const CollectionGuard&) = delete;
  CollectionGuard& operator=(const CollectionGuard&) = delete;

  /// If the worker serves several programs, or one has left.
  void activate(bool active) noexcept { active_ = active; }

 private:
  static PyObject* called(PyObject* self, PyObject* arguments) noexcept;
  void begin() noexcept;
  void end() noexcept;

  const PyRef context_;
  const unsigned long thread_;
  bool active_ = false;
};

}  // namespace isopool::worker
