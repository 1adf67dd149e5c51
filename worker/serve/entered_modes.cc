// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/entered_modes.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>

#include "worker/python/interpreter.h"

namespace isopool::worker {

namespace {

int autocastNesting() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

}  // namespace

EnteredModes EnteredModes::ofThisThread() {
  EnteredModes modes;
  modes.autocastNesting_ = autocastNesting();
  modes.tracing_ = torch::jit::tracer::getTracingState();
  modes.optimized_ = torch::jit::getGraphExecutorOptimize();
  modes.recursionLimit_ = ::Py_GetRecursionLimit();
  modes.stackSize_ = ::PyThread_get_stacksize();
  const PyThreadState* thread = ::PyThreadState_Get();
  modes.trace_ = thread->c_tracefunc;
  modes.traceObject_ = PyRef::share(thread->c_traceobj);
  modes.profile_ = thread->c_profilefunc;
  modes.profileObject_ = PyRef::share(thread->c_profileobj);
  return modes;
}

void EnteredModes::apply() const {
  // Before torch's state: it changes the dispatch keys, too.
  torch::jit::tracer::setTracingState(tracing_);
  const std::shared_ptr<c10::ThreadLocalDebugInfo> profiler = c10::ThreadLocalDebugInfo::current();
  const at::RecordFunctionTLS observers = at::get_record_function_tls_();
  at::ThreadLocalState::setThreadLocalState(torch_);
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(profiler);
  at::set_record_function_tls_(observers);
  // At the nesting 0 autocast forgets the weights that it has cast.
  int nesting = autocastNesting();
  while (nesting > autocastNesting_) nesting = at::autocast::decrement_nesting();
  while (nesting < autocastNesting_) nesting = at::autocast::increment_nesting();
  at::autocast::clear_cache();
  if (torch::jit::getGraphExecutorOptimize() != optimized_) {
    torch::jit::setGraphExecutorOptimize(optimized_);
  }
  locals_.apply();
  floatingPoint_.apply();
  if (::Py_GetRecursionLimit() != recursionLimit_) ::Py_SetRecursionLimit(recursionLimit_);
  if (::PyThread_get_stacksize() != stackSize_) ::PyThread_set_stacksize(stackSize_);
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

// What c10::InferenceMode(false) does, without an end.
void leaveInferenceMode() noexcept {
  if (!c10::InferenceMode::is_enabled()) return;
  c10::AutogradState state = c10::AutogradState::get_tls_state();
  state.set_inference_mode(false);
  state.set_grad_mode(true);
  state.set_fw_grad_mode(true);
  c10::AutogradState::set_tls_state(state);
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  keys.included_ = keys.included_.add(c10::DispatchKey::ADInplaceOrView);
  keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset;
  c10::impl::_force_tls_local_dispatch_key_set(keys);
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
