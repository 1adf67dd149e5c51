// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

namespace isopool::python {

/// Takes the GIL on a thread of the library, to call or release what belongs to Python. While one
/// exists, the program's exit waits, 10 s at most: Python ends a thread that is in it when the
/// interpreter ends, and in the midst of C++ that aborts the program. Any thread; may be nested.
class PythonEntry {
 public:
  PythonEntry();
  ~PythonEntry();
  PythonEntry(const PythonEntry&) = delete;
  PythonEntry& operator=(const PythonEntry&) = delete;

  /// False if the program exits: Python must not be touched.
  explicit operator bool() const { return acquired_.has_value(); }

  /// Waits for all that exist, and lets no thread enter from now on. The caller holds the GIL.
  static void close();

 private:
  std::optional<pybind11::gil_scoped_acquire> acquired_;
};

}  // namespace isopool::python
