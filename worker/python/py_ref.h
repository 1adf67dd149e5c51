// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Python.h>

#include <utility>

namespace isopool::worker {

/// Owns one reference to a Python object, or null. Move-only. To be used and destroyed with
/// the GIL held. The end of the last reference may run user code (`__del__`).
class PyRef {
 public:
  PyRef() = default;
  /// Takes over a new reference (or null).
  static PyRef steal(PyObject* object) { return PyRef(object); }
  /// Adds a reference to a borrowed object (or null).
  static PyRef share(PyObject* object) {
    Py_XINCREF(object);
    return PyRef(object);
  }

  PyRef(PyRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PyRef& operator=(PyRef&& other) noexcept {
    if (this != &other) {
      PyObject* former = std::exchange(object_, std::exchange(other.object_, nullptr));
      Py_XDECREF(former);
    }
    return *this;
  }
  PyRef(const PyRef&) = delete;
  PyRef& operator=(const PyRef&) = delete;
  ~PyRef() { Py_XDECREF(object_); }

  /// A borrowed reference, valid as long as this object has it.
  PyObject* get() const { return object_; }
  /// The caller owns the reference from now on.
  PyObject* release() { return std::exchange(object_, nullptr); }
  void reset() { *this = PyRef(); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit PyRef(PyObject* object) : object_(object) {}

  PyObject* object_ = nullptr;
};

}  // namespace isopool::worker
