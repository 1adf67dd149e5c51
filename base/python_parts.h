// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// First, as Python asks for: it decides what the system's headers declare.
#include <Python.h>

#include <cstddef>
#include <string>

#include "base/repetition.h"

namespace isopool::base {

/// The parts of a Python object, for RepetitionCount: the elements of tuples, lists and dicts. For
/// worker/values and python/native. With the GIL held; runs no Python code.
struct PythonParts {
  static const void* identity(PyObject* object) {
    const bool hasParts = isContainer(object) || units(object) > 1;
    return hasParts && Py_REFCNT(object) > 1 ? object : nullptr;
  }
  static size_t units(PyObject* object) {
    const size_t length = PyUnicode_Check(object)
                              ? static_cast<size_t>(PyUnicode_GET_LENGTH(object))
                          : PyBytes_Check(object) ? static_cast<size_t>(PyBytes_GET_SIZE(object))
                                                  : 0;
    return 1 + length / Repetition::kTextUnit;
  }
  template <typename Visit>
  static void each(PyObject* object, Visit&& visit) {
    if (PyTuple_Check(object)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) visit(PyTuple_GET_ITEM(object, i));
    } else if (PyList_Check(object)) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) visit(PyList_GET_ITEM(object, i));
    } else if (PyDict_Check(object)) {
      PyObject* key = nullptr;
      PyObject* value = nullptr;
      Py_ssize_t position = 0;
      while (PyDict_Next(object, &position, &key, &value) != 0) {
        visit(key);
        visit(value);
      }
    }
  }

  static bool isContainer(PyObject* object) {
    return PyTuple_Check(object) || PyList_Check(object) || PyDict_Check(object);
  }
};

/// Why a Python object can't be written as a value because of how often its parts occur in it;
/// empty if it can. With the GIL held; runs no Python code.
inline std::string repetitionRefusal(PyObject* object) {
  return PythonParts::isContainer(object) ? RepetitionCount<PythonParts>::of(object).refusal()
                                          : std::string();
}

/// Counts the values that are made of an object's parts, and the parts themselves once there are
/// many.
class PythonRepetitionCheck {
 public:
  explicit PythonRepetitionCheck(PyObject* root) : root_(root) {}

  /// Call before the value of each part is made: repetitionRefusal() of the whole object.
  std::string refusalBefore(PyObject* part) {
    made_ += PythonParts::units(part);
    if (counted_ || made_ < Repetition::kUncounted) return {};
    counted_ = true;
    return repetitionRefusal(root_);
  }

 private:
  PyObject* const root_;
  size_t made_ = 0;
  bool counted_ = false;
};

}  // namespace isopool::base
