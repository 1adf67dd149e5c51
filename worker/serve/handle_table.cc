// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/handle_table.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "ipc/tensor/routing_allocator.h"
#include "worker/serve/refusal.h"
#include "worker/values/simple_values.h"

namespace isopool::worker {

namespace {

constexpr int kDeepest = 8;
constexpr size_t kMostObjects = 4096;

// Finds the memory that an object keeps, also inside containers.
class Search {
 public:
  template <typename Found>
  void visit(PyObject* object, int depth, Found&& found) {
    if (depth > kDeepest || ++seen_ > kMostObjects) return;
    if (isTensor(object)) {
      const at::Tensor& tensor = THPVariable_Unpack(object);
      if (!tensor.has_storage()) return;
      const c10::Storage& storage = tensor.storage();
      if (ipc::isHeapMemory(storage.data_ptr())) found(storage.data(), storage.nbytes());
    } else if (PyBytes_CheckExact(object)) {
      found(object, static_cast<uint64_t>(PyBytes_GET_SIZE(object)));
    } else if (PyByteArray_CheckExact(object)) {
      found(object, static_cast<uint64_t>(PyByteArray_GET_SIZE(object)));
    } else if (PyList_CheckExact(object)) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
        visit(PyList_GET_ITEM(object, i), depth + 1, found);
      }
    } else if (PyTuple_CheckExact(object)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
        visit(PyTuple_GET_ITEM(object, i), depth + 1, found);
      }
    } else if (PyDict_CheckExact(object)) {
      Py_ssize_t position = 0;
      PyObject* value = nullptr;
      while (PyDict_Next(object, &position, nullptr, &value) != 0) visit(value, depth + 1, found);
    }
  }

 private:
  size_t seen_ = 0;
};

}  // namespace

void HandleTable::set(base::HandleId id, PyRef object) {
  discount(id);
  account(id, object.get());
  if (limit_ != 0 && bytes_ > limit_) {
    const uint64_t wanted = bytes_;
    forget(id);
    throw Refusal(
        ipc::RefusalKind::kLimitMet,
        "handles would keep " + std::to_string(wanted) +
            " bytes of the worker's own memory, and the supervisor lets the program hold " +
            std::to_string(limit_) + " (limits.memory, ISOPOOL_CLIENT_MEMORY)");
  }
  objects_.set(id, std::move(object));
  // Clients number handles in ascending order.
  newest_ = std::max(newest_, id);
  tell();
}

void HandleTable::requireRoom() const {
  if (limit_ == 0 || bytes_ < limit_) return;
  throw Refusal(ipc::RefusalKind::kLimitMet,
                "handles keep " + std::to_string(bytes_) +
                    " bytes of the worker's own memory, which is all that the supervisor lets the "
                    "program hold (limits.memory, ISOPOOL_CLIENT_MEMORY): release some handles");
}

std::optional<base::ObjectId> HandleTable::ownerOf(base::HandleId id) const {
  const auto found = owners_.find(id);
  return found != owners_.end() ? std::optional(found->second) : std::nullopt;
}

void HandleTable::forget(base::HandleId id) {
  discount(id);
  owners_.erase(id);
  tell();
  objects_.forget(id);
}

void HandleTable::clear() {
  handles_.clear();
  storages_.clear();
  owners_.clear();
  bytes_ = 0;
  tell();
  objects_.clear();
}

void HandleTable::account(base::HandleId id, PyObject* object) {
  std::vector<const void*>& storages = handles_[id];
  Search().visit(object, 0, [&](const void* data, uint64_t bytes) {
    if (std::find(storages.begin(), storages.end(), data) != storages.end()) return;
    Storage& storage = storages_[data];
    if (storage.handles++ == 0) bytes_ += storage.bytes = bytes;
    storages.push_back(data);
  });
}

void HandleTable::discount(base::HandleId id) {
  const auto found = handles_.find(id);
  if (found == handles_.end()) return;
  for (const void* data : found->second) {
    const auto storage = storages_.find(data);
    if (--storage->second.handles > 0) continue;
    bytes_ -= storage->second.bytes;
    storages_.erase(storage);
  }
  handles_.erase(found);
}

}  // namespace isopool::worker
