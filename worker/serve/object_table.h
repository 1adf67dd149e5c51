// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unordered_map>
#include <utility>

#include "worker/python/py_ref.h"
#include "worker/serve/shown_models.h"

namespace isopool::worker {

/// An object to which a client gave a number.
struct NumberedObject {
  PyRef object;
  ShownModels::Name model;  ///< which model it is, for the worker's status page
};

/// Python objects by the number that a client gave them: its replicated objects, or its handles.
/// The call loop's thread, with the GIL.
template <typename IdType>
class ObjectTable {
 public:
  /// Null if the number is unknown. Valid until the table changes.
  const NumberedObject* entry(IdType id) const {
    const auto found = objects_.find(id);
    return found == objects_.end() ? nullptr : &found->second;
  }
  /// A borrowed reference; null if the number is unknown.
  PyObject* find(IdType id) const {
    const NumberedObject* found = entry(id);
    return found == nullptr ? nullptr : found->object.get();
  }
  void set(IdType id, PyRef object, ShownModels::Name model = {}) {
    objects_[id] = {std::move(object), std::move(model)};
  }
  /// False if the number is unknown.
  bool forget(IdType id) {
    const auto found = objects_.find(id);
    if (found == objects_.end()) return false;
    // The object dies after the table is changed: its destruction may run user code, which may
    // use the table.
    const NumberedObject last = std::move(found->second);
    objects_.erase(found);
    return true;
  }
  bool empty() const noexcept { return objects_.empty(); }
  void clear() {
    auto all = std::move(objects_);
    objects_.clear();
  }

 private:
  std::unordered_map<IdType, NumberedObject> objects_;
};

}  // namespace isopool::worker
