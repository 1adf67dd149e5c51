// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unordered_map>

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Python objects by the number that a client gave them: its replicated objects, or its handles.
/// The call loop's thread, with the GIL.
template <typename IdType>
class ObjectTable {
 public:
  /// A borrowed reference; null if the number is unknown.
  PyObject* find(IdType id) const {
    const auto found = objects_.find(id);
    return found == objects_.end() ? nullptr : found->second.get();
  }
  void set(IdType id, PyRef object) { objects_[id] = std::move(object); }
  /// False if the number is unknown.
  bool forget(IdType id) {
    const auto found = objects_.find(id);
    if (found == objects_.end()) return false;
    // The object dies after the table is changed: its destruction may run user code, which may
    // use the table.
    const PyRef last = std::move(found->second);
    objects_.erase(found);
    return true;
  }
  bool empty() const noexcept { return objects_.empty(); }
  void clear() {
    auto all = std::move(objects_);
    objects_.clear();
  }

 private:
  std::unordered_map<IdType, PyRef> objects_;
};

}  // namespace isopool::worker
