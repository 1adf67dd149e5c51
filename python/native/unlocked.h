// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/python_version.h"

namespace isopool::python {

/// True once the interpreter ends: a thread that then asks for the GIL never returns.
inline bool isEnding() { return base::isInterpreterFinalizing() || Py_IsInitialized() == 0; }

/// Releases the GIL while it exists. The destructor never returns on a thread that is in C++ when
/// the interpreter ends, as a daemon thread may be: Python ends a thread that then asks for the
/// GIL, and in the midst of C++ that would abort the program.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* const state_;
};

/// Runs `step`, which may wait for a worker, without the GIL.
template <typename Step>
auto unlocked(const Step& step) {
  const GilReleased released;
  return step();
}

/// Runs Python's handlers of signals, which Ctrl-C needs, while the main thread waits for a call.
/// One per call. The caller holds the GIL at the construction and the destruction.
class SignalHandlers {
 public:
  SignalHandlers();
  /// For CallOptions::interrupted: true once a handler has raised. Empty on threads other than the
  /// main one, where Python runs no handlers. Valid as long as this object.
  std::function<bool()> interrupted();
  /// Raises what a handler has raised, as a rule a KeyboardInterrupt.
  void check();

 private:
  const bool onMainThread_;
  std::optional<pybind11::error_already_set> raised_;
};

/// Releases the GIL in the destructor, which may wait for workers, even if the garbage collector is
/// the last owner.
template <typename T, typename... Arguments>
std::shared_ptr<T> makeShared(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), [](T* object) {
    const GilReleased released;
    delete object;
  });
}

}  // namespace isopool::python
