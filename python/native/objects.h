// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>
#include <string>

#include "isopool/isopool.h"

// What Python holds. Each member lets go of the GIL while it waits for a worker, so that Python's
// other threads go on, and takes and gives Python objects with the GIL held. Any thread.
namespace isopool::python {

/// A session until it is closed.
class Session {
 public:
  explicit Session(InterpreterSession session)
      : session_(std::make_shared<InterpreterSession>(std::move(session))) {}

  /// Throws Error once the session is closed.
  std::shared_ptr<InterpreterSession> get() const;
  void close();

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<InterpreterSession> session_;
};

/// A handle to an object in a worker, and the session that it came from.
class RemoteObject {
 public:
  RemoteObject(std::shared_ptr<InterpreterSession> session, Obj object)
      : session_(std::move(session)), object_(std::move(object)) {}

  RemoteObject call(const pybind11::args& args, const pybind11::kwargs& kwargs) const;
  /// Throws pybind11::attribute_error where Python in the worker raises AttributeError.
  RemoteObject attribute(const std::string& name) const;
  pybind11::object value() const;

 private:
  std::shared_ptr<InterpreterSession> session_;
  Obj object_;
};

/// Adds the classes to the extension module.
void defineObjects(pybind11::module_& module);

}  // namespace isopool::python
