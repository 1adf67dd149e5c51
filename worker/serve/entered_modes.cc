// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/entered_modes.h"

#include "worker/python/interpreter.h"

namespace isopool::worker {

EnteredModes EnteredModes::ofThisThread() {
  EnteredModes modes;
  const PyThreadState* thread = ::PyThreadState_Get();
  modes.trace_ = thread->c_tracefunc;
  modes.traceObject_ = PyRef::share(thread->c_traceobj);
  modes.profile_ = thread->c_profilefunc;
  modes.profileObject_ = PyRef::share(thread->c_profileobj);
  return modes;
}

void EnteredModes::apply() const {
  at::ThreadLocalState::setThreadLocalState(torch_);
  floatingPoint_.apply();
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

void leaveEventLoop() noexcept {
  static PyObject* const name = ::PyUnicode_InternFromString("asyncio.events");
  if (name == nullptr) return ::PyErr_Clear();
  PyObject* const events = ::PyDict_GetItemWithError(::PyImport_GetModuleDict(), name);
  if (events != nullptr) {
    const PyRef loop = PyRef::steal(::PyObject_CallMethod(events, "_get_running_loop", nullptr));
    if (loop && loop.get() != Py_None) {
      PyRef::steal(::PyObject_CallMethod(events, "_set_running_loop", "O", Py_None));
    }
  }
  ::PyErr_Clear();
}

}  // namespace isopool::worker
