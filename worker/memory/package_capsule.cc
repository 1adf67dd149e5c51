// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/package_capsule.h"

#include <utility>

namespace isopool::worker {

namespace {

// The name of a capsule tells its kind.
constexpr const char* kCopyOnWriteCapsule = "isopool.package";
constexpr const char* kSharedCapsule = "isopool.moved";
using MappingOwner = std::shared_ptr<const ipc::Mapping>;

const char* nameOf(PyObject* capsule) {
  return PyCapsule_IsValid(capsule, kSharedCapsule) != 0 ? kSharedCapsule : kCopyOnWriteCapsule;
}

MappingOwner mappingIn(PyObject* capsule, const char* name) {
  const auto* owner = static_cast<MappingOwner*>(PyCapsule_GetPointer(capsule, name));
  return owner == nullptr ? nullptr : *owner;
}

void releaseCapsule(PyObject* capsule) {
  delete static_cast<MappingOwner*>(PyCapsule_GetPointer(capsule, nameOf(capsule)));
}

}  // namespace

PyRef makePackageCapsule(MappingOwner mapping, bool shared) {
  auto owner = std::make_unique<MappingOwner>(std::move(mapping));
  PyRef capsule = PyRef::steal(
      PyCapsule_New(owner.get(), shared ? kSharedCapsule : kCopyOnWriteCapsule, &releaseCapsule));
  if (capsule) [[maybe_unused]]
    auto* taken = owner.release();
  return capsule;
}

MappingOwner packageMapping(PyObject* capsule) { return mappingIn(capsule, nameOf(capsule)); }

MappingOwner movedObjectMapping(PyObject* capsule) { return mappingIn(capsule, kSharedCapsule); }

}  // namespace isopool::worker
