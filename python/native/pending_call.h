// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

#include "base/mutex.h"
#include "isopool/isopool.h"
#include "python/native/callback.h"

namespace isopool::python {

/// Passes outcomes of asynchronous calls to Python. The threads that bring outcomes do not wait for
/// the GIL while another one of them has it: that one passes theirs on, too, so that they can make
/// the next calls. If it is in one callback for kLongCallback, which may wait for another outcome,
/// one more thread passes on what has come meanwhile. Thread-safe.
class Deliveries : public std::enable_shared_from_this<Deliveries> {
 public:
  static constexpr std::chrono::milliseconds kLongCallback{10};

  /// The callback of one call: calls `callback(value, error)`, one of which is None, with the GIL,
  /// on a thread that settles a call or one of its own. What it raises goes to sys.unraisablehook.
  /// Once the interpreter is ending, does nothing. The caller holds the GIL.
  std::function<void(const Outcome&)> to(pybind11::function callback);

 private:
  using Clock = std::chrono::steady_clock;
  struct Delivery {
    Callback callback;
    Outcome outcome;
  };
  void deliver(Delivery delivery);
  void passAll();
  static void pass(const Delivery& delivery);
  void watchLocked() noexcept ISOPOOL_REQUIRES(mutex_);
  void watch();

  base::Mutex mutex_;
  std::deque<Delivery> waiting_ ISOPOOL_GUARDED_BY(mutex_);
  bool acquiring_ ISOPOOL_GUARDED_BY(mutex_) = false;   // a thread waits for the GIL, to pass on
  size_t passing_ ISOPOOL_GUARDED_BY(mutex_) = 0;       // threads that are in callbacks
  Clock::time_point taken_ ISOPOOL_GUARDED_BY(mutex_);  // when the last callback began
  base::Condition left_;
  bool watched_ ISOPOOL_GUARDED_BY(mutex_) = false;  // by a thread
};

/// The Python exception for a C++ one, as a call that throws it raises it. Needs the GIL.
pybind11::object exceptionOf(const std::exception_ptr& error);

/// Adds the class PendingCall to the extension module.
void definePendingCall(pybind11::module_& module);

}  // namespace isopool::python
