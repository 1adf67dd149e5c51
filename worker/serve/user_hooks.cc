// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/user_hooks.h"

#include <Python.h>

#include <new>

namespace isopool::worker {

namespace {

constexpr const char* kDicts[] = {
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_buffer_registration_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
};

PyObject* noteAndMakeNone(void* asked) {
  *static_cast<bool*>(asked) = true;
  Py_RETURN_NONE;
}

// CPython builds the arguments of an event only if there is a hook for it.
bool hasAuditHook() noexcept {
  bool asked = false;
  if (::PySys_Audit("isopool.look_for_hooks", "(O&)", &noteAndMakeNone, &asked) != 0) {
    ::PyErr_Clear();
  }
  return asked;
}

}  // namespace

UserHooks::UserHooks() : audited_(hasAuditHook()) {
  const PyRef module = PyRef::steal(::PyImport_ImportModule("torch.nn.modules.module"));
  for (const char* name : kDicts) {
    PyRef dict;
    if (module) dict = PyRef::steal(::PyObject_GetAttrString(module.get(), name));
    // Another version of torch may lack one.
    if (dict && PyDict_Check(dict.get())) dicts_.push_back(std::move(dict));
    ::PyErr_Clear();
  }
  atFirst_ = seen_ = moduleHooks();
}

size_t UserHooks::moduleHooks() const noexcept {
  size_t count = 0;
  for (const PyRef& dict : dicts_) count += static_cast<size_t>(PyDict_GET_SIZE(dict.get()));
  return count;
}

void UserHooks::ranCodeOf(uint64_t client) noexcept {
  if (!audited_ && hasAuditHook()) {
    audited_ = true;
    ofAudits_ = client;
  }
  const size_t now = moduleHooks();
  if (now == seen_) return;
  seen_ = now;
  try {
    ofModules_.insert(client);
  } catch (const std::bad_alloc&) {
    seen_ = SIZE_MAX;  // looks again
  }
}

void UserHooks::left(uint64_t client) noexcept {
  if (ofModules_.erase(client) > 0) modulesLeft_ = true;
  if (client == ofAudits_) auditsLeft_ = true;
}

bool UserHooks::leftBehind() const noexcept {
  return auditsLeft_ || (modulesLeft_ && moduleHooks() > atFirst_);
}

}  // namespace isopool::worker
