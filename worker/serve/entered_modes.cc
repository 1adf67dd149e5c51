// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/entered_modes.h"

#include "worker/python/interpreter.h"

namespace isopool::worker {

EnteredModes EnteredModes::ofThisThread() {
  EnteredModes modes;
  modes.function_ = at::impl::PythonTorchFunctionTLS::get_state();
  modes.dispatch_ = c10::impl::TorchDispatchModeTLS::get_state();
  const PyThreadState* thread = ::PyThreadState_Get();
  modes.trace_ = thread->c_tracefunc;
  modes.traceObject_ = PyRef::share(thread->c_traceobj);
  modes.profile_ = thread->c_profilefunc;
  modes.profileObject_ = PyRef::share(thread->c_profileobj);
  return modes;
}

void EnteredModes::apply() const {
  at::impl::PythonTorchFunctionTLS::set_state(function_);
  c10::impl::TorchDispatchModeTLS::set_state(dispatch_);
  const PyThreadState* thread = ::PyThreadState_Get();
  if (thread->c_tracefunc != trace_ || thread->c_traceobj != traceObject_.get()) {
    ::PyEval_SetTrace(trace_, traceObject_.get());
  }
  if (thread->c_profilefunc != profile_ || thread->c_profileobj != profileObject_.get()) {
    ::PyEval_SetProfile(profile_, profileObject_.get());
  }
}

// CPython has no function that withdraws it: PyThreadState_SetAsyncExc(thread, NULL) leaves a flag
// set for good, with which a traced function never gets past its first instruction (3.11).
void forgetRaisedByOtherThread() noexcept {
  if (::PyThreadState_Get()->async_exc == nullptr) return;
  const PyRef nothing = workerFunction("startup", "do_nothing");
  if (nothing) PyRef::steal(::PyObject_CallNoArgs(nothing.get()));
  ::PyErr_Clear();
}

}  // namespace isopool::worker
