// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/collection_guard.h"

#include <c10/core/AutogradState.h>

#include <optional>
#include <string_view>
#include <utility>

#include "worker/process/floating_point.h"

namespace isopool::worker {

namespace {

/// Of the collection that runs.
struct Before {
  FloatingPointControl floatingPoint;
  c10::AutogradState autograd;
  PyRef entered;  ///< a context; empty: none
};
std::optional<Before> before;

constexpr const char* kGuard = "isopool.CollectionGuard";

}  // namespace

CollectionGuard::CollectionGuard(PyRef context)
    : context_(std::move(context)), thread_(::PyThread_get_thread_ident()) {
  static PyMethodDef definition{"isopool", &CollectionGuard::called, METH_VARARGS, nullptr};
  const PyRef self = PyRef::steal(::PyCapsule_New(this, kGuard, nullptr));
  const PyRef function = PyRef::steal(self ? ::PyCFunction_New(&definition, self.get()) : nullptr);
  const PyRef collector = PyRef::steal(::PyImport_ImportModule("gc"));
  const PyRef callbacks =
      PyRef::steal(collector ? ::PyObject_GetAttrString(collector.get(), "callbacks") : nullptr);
  if (function && callbacks) ::PyList_Append(callbacks.get(), function.get());
  ::PyErr_Clear();
}

// The arguments are a phase, "start" or "stop", and facts about the collection.
PyObject* CollectionGuard::called(PyObject* self, PyObject* arguments) noexcept {
  auto* const guard = static_cast<CollectionGuard*>(::PyCapsule_GetPointer(self, kGuard));
  const char* phase = nullptr;
  PyObject* facts = nullptr;
  if (guard == nullptr || ::PyArg_ParseTuple(arguments, "sO", &phase, &facts) == 0) return nullptr;
  if (::PyThread_get_thread_ident() == guard->thread_) {
    std::string_view(phase) == "start" ? guard->begin() : guard->end();
  }
  Py_RETURN_NONE;
}

void CollectionGuard::begin() noexcept {
  if (!active_) return;
  before = Before{FloatingPointControl::ofThisThread(), c10::AutogradState::get_tls_state(), {}};
  PyRef scratch = PyRef::steal(::PyContext_Copy(context_.get()));
  if (scratch && ::PyContext_Enter(scratch.get()) == 0) before->entered = std::move(scratch);
  ::PyErr_Clear();
}

void CollectionGuard::end() noexcept {
  if (!before) return;
  before->floatingPoint.apply();
  c10::AutogradState::set_tls_state(before->autograd);
  if (before->entered) ::PyContext_Exit(before->entered.get());
  ::PyErr_Clear();
  before.reset();
}

}  // namespace isopool::worker
