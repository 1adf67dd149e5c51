// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "isopool/isopool.h"
#include "python/native/callback.h"

namespace isopool::python {

/// Passes outcomes of asynchronous calls to Python. The threads that bring outcomes do not wait for
/// the GIL while another one of them has it: that one passes theirs on, too, so that they can make
/// the next calls. Thread-safe.
class Deliveries : public std::enable_shared_from_this<Deliveries> {
 public:
  /// The callback of one call: calls `callback(value, error)`, one of which is None, with the GIL,
  /// on a thread that settles a call. What it raises goes to sys.unraisablehook. Once the
  /// interpreter is ending, does nothing. The caller holds the GIL.
  std::function<void(const Outcome&)> to(pybind11::function callback);

 private:
  struct Delivery {
    Callback callback;
    Outcome outcome;
  };
  void deliver(Delivery delivery);
  static void pass(const Delivery& delivery);

  base::Mutex mutex_;
  std::vector<Delivery> waiting_ ISOPOOL_GUARDED_BY(mutex_);
  bool delivering_ ISOPOOL_GUARDED_BY(mutex_) = false;
};

/// The Python exception for a C++ one, as a call that throws it raises it. Needs the GIL.
pybind11::object exceptionOf(const std::exception_ptr& error);

/// Adds the class PendingCall to the extension module.
void definePendingCall(pybind11::module_& module);

}  // namespace isopool::python
