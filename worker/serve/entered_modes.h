// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/ThreadLocalState.h>
#include <Python.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <memory>

#include "worker/process/floating_point.h"
#include "worker/python/py_ref.h"
#include "worker/serve/thread_locals.h"

namespace isopool::worker {

/// What code has turned on in this thread and left on: torch's state of the thread (grad and
/// inference mode, TorchFunctionMode, also by torch.set_default_device, TorchDispatchMode,
/// functorch transforms, excluded dispatch keys, hooks of saved tensors, the nesting of autocast,
/// a trace of torch.jit, torch.jit.optimized_execution), ThreadLocals, FloatingPointControl,
/// sys.setrecursionlimit(), threading.stack_size(), sys.settrace() and sys.setprofile() (also by
/// cProfile). As in the program itself it stays for its later calls; in a worker of several
/// programs each has its own. Without torch's profiler, of which a process has one. With the GIL.
class EnteredModes {
 public:
  static EnteredModes ofThisThread();
  void apply() const;

 private:
  EnteredModes() = default;

  at::ThreadLocalState torch_;
  int autocastNesting_ = 0;
  std::shared_ptr<torch::jit::tracer::TracingState> tracing_;
  bool optimized_ = true;
  ThreadLocals locals_ = ThreadLocals::ofThisThread();
  FloatingPointControl floatingPoint_ = FloatingPointControl::ofThisThread();
  int recursionLimit_ = 0;
  size_t stackSize_ = 0;  ///< of new threads, in bytes; 0: the default
  Py_tracefunc trace_ = nullptr;
  PyRef traceObject_;
  Py_tracefunc profile_ = nullptr;
  PyRef profileObject_;
};

/// Takes an exception that another thread has raised in this one and that no code has seen yet
/// (PyThreadState_SetAsyncExc), and forgets it. With the GIL, and without entered modes.
void forgetRaisedByOtherThread() noexcept;

/// Ends an inference mode that code has left on: else the runtime would make the next call's
/// arguments in it, as tensors without versions. Other modes stay as they are.
void leaveInferenceMode() noexcept;

/// If code has left an event loop of asyncio as the running one, none runs any more. With the GIL.
void leaveEventLoop() noexcept;

}  // namespace isopool::worker
