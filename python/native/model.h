// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isopool/isopool.h"
#include "python/native/pending_call.h"
#include "python/native/streams.h"

namespace isopool::python {

/// A ReplicatedObj, or a method of it, with the options of its calls. Constant after its
/// construction. The caller of a member holds the GIL; the member releases it while it waits for a
/// worker. Thread-safe.
class Model {
 public:
  /// `workers`: of its pool.
  Model(size_t workers, ReplicatedObj object) : workers_(workers), object_(std::move(object)) {
    options_.pickledErrors = true;
  }

  pybind11::object call(const pybind11::args& args, const pybind11::kwargs& kwargs) const;
  /// Begins the call and returns; `callback`: see Deliveries::to().
  PendingCall callAsync(const pybind11::tuple& args, const pybind11::dict& kwargs,
                        const pybind11::function& callback) const;
  /// The result must be an iterable.
  std::shared_ptr<Stream> stream(const pybind11::args& args, const pybind11::kwargs& kwargs) const;
  std::shared_ptr<ModelSession> session(bool ownReplica) const;
  /// One result for each worker.
  pybind11::list callOnAll(const pybind11::args& args, const pybind11::kwargs& kwargs) const;
  void warmUp(const pybind11::args& args, const pybind11::kwargs& kwargs) const;
  ModelInfo info() const;
  void unload() const;

  /// The same object's method of this name, called with the same options.
  std::shared_ptr<Model> method(const std::string& name) const;
  /// The same object, called with these options; those that are None stay as they are.
  std::shared_ptr<Model> withOptions(const pybind11::object& timeout,
                                     const std::optional<bool>& idempotent,
                                     const std::optional<uint64_t>& tag,
                                     const pybind11::object& runTime) const;
  const std::string& name() const { return object_.name(); }
  size_t workers() const { return workers_; }
  /// The same number for all that were made of one object by method() and withOptions().
  uintptr_t origin() const { return reinterpret_cast<uintptr_t>(deliveries_.get()); }

 private:
  /// Calls `use` with the object or its method, without the GIL.
  template <typename Use>
  auto onCallee(const Use& use) const;
  CallOptions optionsSince(std::chrono::steady_clock::time_point begin) const;

  size_t workers_;
  ReplicatedObj object_;
  // Of this object and all that were made of it.
  std::shared_ptr<Deliveries> deliveries_ = std::make_shared<Deliveries>();
  std::string method_;  // empty: the object itself
  CallOptions options_;
};

/// The options of a call that may take this time, see timeOf(); None: no limit.
CallOptions withTimeout(const pybind11::object& timeout);

/// Adds the classes Model, ModelInfo and ModelValue to the extension module.
void defineModel(pybind11::module_& module);

}  // namespace isopool::python
