// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <Python.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// What Python code has entered in this thread and not left: TorchFunctionMode (also by
/// torch.set_default_device), TorchDispatchMode, sys.settrace() and sys.setprofile() (also by
/// cProfile). As in the program itself they stay for its later calls; in a worker of several
/// programs each has its own. With the GIL.
class EnteredModes {
 public:
  /// None.
  EnteredModes() = default;

  static EnteredModes ofThisThread();
  void apply() const;

 private:
  at::impl::PythonTorchFunctionTLS function_;
  c10::impl::TorchDispatchModeTLS dispatch_;
  Py_tracefunc trace_ = nullptr;
  PyRef traceObject_;
  Py_tracefunc profile_ = nullptr;
  PyRef profileObject_;
};

/// Takes an exception that another thread has raised in this one and that no code has seen yet
/// (PyThreadState_SetAsyncExc), and forgets it. With the GIL, and without entered modes.
void forgetRaisedByOtherThread() noexcept;

}  // namespace isopool::worker
