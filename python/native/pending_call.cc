// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/pending_call.h"

#include <condition_variable>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/blocked_signals.h"
#include "python/native/errors.h"
#include "python/native/python_entry.h"
#include "python/native/unlocked.h"
#include "python/native/values.h"

namespace isopool::python {

namespace py = pybind11;

namespace {

// True on a thread that passes an outcome on.
constinit thread_local bool inCallback = false;

}  // namespace

std::function<void(const Outcome&)> Deliveries::to(py::function callback) {
  return [self = shared_from_this(),
          held = makeCallback(std::move(callback))](const Outcome& outcome) {
    self->deliver({held, outcome});
  };
}

void Deliveries::deliver(Delivery delivery) {
  {
    base::MutexLock lock(mutex_);
    waiting_.push_back(std::move(delivery));
    // A callback on this thread may wait for this very outcome.
    if (!inCallback && (acquiring_ || passing_ > 0)) return watchLocked();
    acquiring_ = true;
  }
  passAll();
}

// The GIL is taken once for all outcomes that come meanwhile. At the program's exit they stay.
void Deliveries::passAll() {
  const PythonEntry entry;
  if (!entry) return;
  base::MutexLock lock(mutex_);
  acquiring_ = false;
  while (!waiting_.empty()) {
    std::optional<Delivery> next(std::move(waiting_.front()));
    waiting_.pop_front();
    taken_ = Clock::now();
    ++passing_;
    lock.unlock();
    {
      const bool outer = std::exchange(inCallback, true);
      pass(*next);
      // Not with the lock: the end of a tensor lets other threads have the GIL, which wait for the
      // lock then.
      next.reset();
      inCallback = outer;
    }
    lock.lock();
    --passing_;
  }
}

// Call when an outcome is left to a thread that passes on others.
void Deliveries::watchLocked() noexcept {
  if (watched_) return left_.notify_one();
  try {
    const base::BlockedSignals blocked;
    std::thread([self = shared_from_this()] { self->watch(); }).detach();
    watched_ = true;
  } catch (const std::exception&) {
    // No thread: the outcome comes after the present callback.
  }
}

void Deliveries::watch() {
  constexpr std::chrono::seconds kIdle(1);
  base::MutexLock lock(mutex_);
  for (;;) {
    if (waiting_.empty()) {
      if (left_.wait_for(lock, kIdle) == std::cv_status::timeout && waiting_.empty()) break;
      continue;
    }
    if (!acquiring_ && Clock::now() - taken_ >= kLongCallback) {
      try {
        const base::BlockedSignals blocked;
        std::thread([self = shared_from_this()] { self->passAll(); }).detach();
        acquiring_ = true;
      } catch (const std::exception&) {
        // No thread: the next look tries again.
      }
    }
    left_.wait_for(lock, kLongCallback);
  }
  watched_ = false;
}

void Deliveries::pass(const Delivery& delivery) {
  try {
    py::object value = py::none();
    py::object error = py::none();
    try {
      value = toObject(delivery.outcome.value());
    } catch (...) {
      error = exceptionOf(std::current_exception());
    }
    (*delivery.callback)(std::move(value), std::move(error));
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable(*delivery.callback);
  }
}

py::object exceptionOf(const std::exception_ptr& error) {
  try {
    raiseOf(error);
  } catch (py::error_already_set& raised) {
    return raised.value();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& other) {
    PyErr_SetString(PyExc_RuntimeError, other.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception that is not a std::exception");
  }
  return py::error_already_set().value();
}

void definePendingCall(py::module_& module) {
  py::class_<PendingCall>(module, "PendingCall", "A call that was begun and whose outcome comes.")
      .def(
          "cancel", [](const PendingCall& self) { return unlocked([&] { return self.cancel(); }); },
          "Cancels the call if it has not started. True if it has not run and will not.")
      .def(
          "stop", [](const PendingCall& self) { return unlocked([&] { return self.stop(); }); },
          "Cancels the call, also if it runs: then its worker is killed. False if it has ended.")
      .def(
          "run_inline",
          [](const PendingCall& self) {
            SignalHandlers handlers;
            const std::function<bool()> interrupted = handlers.interrupted();
            const bool ran = unlocked([&] { return self.runInline(interrupted); });
            handlers.check();
            return ran;
          },
          "Makes the call on this thread, unless a thread of the library has begun to make it.\n"
          "True if it was made here. A signal's handler that raises, as Ctrl-C does, stops the\n"
          "call.")
      .def("queued", &PendingCall::queued, "True until a thread of the library begins to make it.")
      .def("ready", [](const PendingCall& self) { return self.ready(); });
}

}  // namespace isopool::python
