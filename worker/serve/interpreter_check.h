// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Checks whether user code has left the interpreter without what every program's code takes for
/// granted: the built-in names, and the modules that were imported before any user code ran. What
/// user code replaces by something else of the kind is shared by all programs and is no failure.
/// With the GIL. Runs no Python code.
class InterpreterCheck {
 public:
  /// Records what there is. To be made before any user code runs.
  InterpreterCheck();

  /// True if there are fewer built-in names than recorded. Takes a nanosecond.
  bool lacksNames() const noexcept { return ::PyDict_Size(builtins_.get()) < builtinNames_; }
  /// What is missing, in words; empty: nothing.
  std::string failure() const;

 private:
  PyRef builtins_;  ///< the dict itself: user code can remove the module
  Py_ssize_t builtinNames_;
  PyRef callables_;
  PyRef names_;  ///< of values that can't be called
  PyRef modules_;
};

}  // namespace isopool::worker
