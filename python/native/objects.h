// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "base/mutex.h"
#include "isopool/isopool.h"

// The objects behind the Python classes. The caller of a member holds the GIL; the member releases
// it while it waits for a worker, so that other Python threads run. Thread-safe.
namespace isopool::python {

/// A session that can be closed.
class Session {
 public:
  explicit Session(InterpreterSession session)
      : session_(std::make_shared<InterpreterSession>(std::move(session))) {}

  /// Throws Error once the session is closed.
  std::shared_ptr<InterpreterSession> get() const;
  /// Releases the session. Calls in flight keep it until they end.
  void close();

 private:
  mutable base::Mutex mutex_;
  std::shared_ptr<InterpreterSession> session_ ISOPOOL_GUARDED_BY(mutex_);
};

/// A handle to an object in a worker, together with its session, which it keeps open.
class RemoteObject {
 public:
  RemoteObject(std::shared_ptr<InterpreterSession> session, Obj object)
      : session_(std::move(session)), object_(std::move(object)) {}

  /// Calls the object. Throws pybind11::type_error if an Obj is a named argument or occurs beside
  /// named arguments.
  RemoteObject call(const pybind11::args& args, const pybind11::kwargs& kwargs) const;
  /// Throws pybind11::attribute_error where Python in the worker raises AttributeError.
  RemoteObject attribute(const std::string& name) const;
  /// The object as a Python value in this process, as Obj::toIValue() converts it.
  pybind11::object value() const;

 private:
  std::shared_ptr<InterpreterSession> session_;
  Obj object_;
};

/// Adds the classes to the extension module.
void defineObjects(pybind11::module_& module);

}  // namespace isopool::python
