// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "base/mutex.h"
#include "isopool/isopool.h"

namespace isopool::python {

/// A ResultStream as a Python iterator. The caller of a member holds the GIL, which the members
/// release while they wait. Any thread may use it, one at a time: others wait.
class Stream {
 public:
  explicit Stream(ResultStream stream) : stream_(std::move(stream)) {}

  /// Throws pybind11::stop_iteration at the end.
  pybind11::object next();
  void close();

 private:
  base::Mutex mutex_;
  ResultStream stream_ ISOPOOL_GUARDED_BY(mutex_);
};

/// A session on one worker whose `self` is a model: calls see the state that earlier ones left.
class ModelSession {
 public:
  explicit ModelSession(InterpreterSession session)
      : session_(std::make_shared<InterpreterSession>(std::move(session))) {}

  /// Calls the model, or the method of it if `method` is not empty; the result as a value.
  pybind11::object call(const std::string& method, const pybind11::args& args,
                        const pybind11::kwargs& kwargs) const;
  void close();

 private:
  std::shared_ptr<InterpreterSession> get() const;

  mutable base::Mutex mutex_;
  std::shared_ptr<InterpreterSession> session_ ISOPOOL_GUARDED_BY(mutex_);
};

/// Adds the classes to the extension module.
void defineStreams(pybind11::module_& module);

}  // namespace isopool::python
