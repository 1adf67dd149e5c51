// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/idle_collection.h"

#include <Python.h>
#include <malloc.h>

#include <algorithm>

#include "ipc/channel/futex.h"
#include "worker/python/interpreter.h"

namespace isopool::worker {

namespace {

// A caller that comes again comes sooner.
constexpr int64_t kQuiet = 10'000'000;  // ns
// With the collection itself less than the second after which a dropped package's memory is free.
constexpr int64_t kLongestWait = 500'000'000;
// A program that drops one package after the other pays a tenth of the worker's time at most,
// unless that would be later than kLongestWait.
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

void IdleCollection::run() {
  const int64_t begin = ipc::monotonicNow();
  // What a finalizer drops is for the next time.
  requestedAt_.reset();
  const PyRef forgetLines = workerFunction("packages", "forget_lines");
  if (!forgetLines || !PyRef::steal(PyObject_CallNoArgs(forgetLines.get()))) PyErr_Clear();
  // A model that turns the collector off does so for its calls, and this is outside of them.
  const int enabled = PyGC_Enable();
  PyGC_Collect();
  if (enabled == 0) PyGC_Disable();
  ::malloc_trim(0);
  const int64_t end = ipc::monotonicNow();
  notBefore_ = end + std::min((end - begin) * kRestPerRun, kLongestWait);
}

}  // namespace isopool::worker
