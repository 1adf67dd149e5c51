// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/idle_collection.h"

#include <Python.h>
#include <malloc.h>

#include <algorithm>

#include "ipc/channel/futex.h"
#include "worker/python/interpreter.h"

namespace isopool::worker {

namespace {

// A caller that makes calls in a row makes the next one sooner.
constexpr int64_t kQuiet = 10'000'000;  // ns
// Together with the collection itself this is less than one second, within which the memory of a
// dropped package is to be free.
constexpr int64_t kLongestWait = 500'000'000;
// If a program drops one package after the other, collections take at most a tenth of the worker's
// time, unless they would then be later than kLongestWait.
constexpr int64_t kRestPerRun = 9;

}  // namespace

void IdleCollection::request() noexcept {
  if (!requestedAt_) requestedAt_ = ipc::monotonicNow();
}

std::optional<std::chrono::nanoseconds> IdleCollection::idleTime(int64_t idleSince) const noexcept {
  if (!requestedAt_) return std::nullopt;
  const int64_t when = std::max(idleSince + kQuiet, notBefore_);
  return std::chrono::nanoseconds(std::max<int64_t>(when - ipc::monotonicNow(), 0));
}

bool IdleCollection::overdue() const noexcept {
  return requestedAt_ && ipc::monotonicNow() - *requestedAt_ >= kLongestWait;
}

std::chrono::nanoseconds IdleCollection::untilRested() const noexcept {
  return std::chrono::nanoseconds(std::max<int64_t>(notBefore_ - ipc::monotonicNow(), 0));
}

void IdleCollection::run() {
  const int64_t begin = ipc::monotonicNow();
  // Reset first: an object that a finalizer drops is for the next collection.
  requestedAt_.reset();
  const PyRef forgetLines = workerFunction("packages", "forget_lines");
  if (!forgetLines || !PyRef::steal(PyObject_CallNoArgs(forgetLines.get()))) PyErr_Clear();
  // Collects even if a model turned the collector off: that is meant for its calls, and no
  // call runs now.
  const int enabled = PyGC_Enable();
  PyGC_Collect();
  if (enabled == 0) PyGC_Disable();
  ::malloc_trim(0);
  const int64_t end = ipc::monotonicNow();
  notBefore_ = end + std::min((end - begin) * kRestPerRun, kLongestWait);
}

}  // namespace isopool::worker
