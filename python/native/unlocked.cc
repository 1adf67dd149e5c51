// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/unlocked.h"

#include <cxxabi.h>
#include <unistd.h>

namespace isopool::python {

namespace py = pybind11;

namespace {

bool isMainThread() {
  static const unsigned long main =
      py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  return PyThread_get_thread_ident() == main;
}

}  // namespace

GilReleased::~GilReleased() {
  try {
    PyEval_RestoreThread(state_);
  } catch (const abi::__forced_unwind&) {
    // Python ends the thread by pthread_exit(), which unwinds its stack.
    for (;;) ::pause();
  }
}

SignalHandlers::SignalHandlers() : onMainThread_(isMainThread()) {}

std::function<bool()> SignalHandlers::interrupted() {
  if (!onMainThread_) return nullptr;
  return [this] {
    const py::gil_scoped_acquire acquired;
    // Taken away: Python code may run before check(), the callback of the call.
    if (!raised_ && PyErr_CheckSignals() != 0) raised_.emplace();
    return raised_.has_value();
  };
}

void SignalHandlers::check() {
  if (raised_) throw py::error_already_set(*raised_);
}

}  // namespace isopool::python
