// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/process_starts.h"

#include <Python.h>
#include <errno.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>
#include <string>
#include <string_view>

#include "worker/python/py_ref.h"
#include "worker/python/python_errors.h"
#include "worker/sandbox/forbidden_acts.h"

namespace isopool::worker {

namespace {

std::atomic<bool> forbidden{false};

// Python's audit events; Python raises each before the act that it names.
constexpr std::array<std::string_view, 8> kStarts = {
    "os.exec",  "os.fork",   "os.forkpty", "os.posix_spawn",
    "os.spawn", "os.system", "pty.spawn",  "subprocess.Popen"};

int refuseStart(const char* event, PyObject*, void*) {
  if (!forbidden.load(std::memory_order_relaxed)) return 0;
  const std::string_view name(event);
  if (std::find(kStarts.begin(), kStarts.end(), name) == kStarts.end()) return 0;
  countForbiddenAct("start of a process (" + std::string(name) + ")");
  errno = EPERM;
  PyErr_SetFromErrno(PyExc_OSError);
  return -1;
}

void countFork() {
  if (forbidden.load(std::memory_order_relaxed)) countForbiddenFork();
}

}  // namespace

void watchProcessStarts() {
  if (PySys_AddAuditHook(refuseStart, nullptr) != 0) {
    throw std::runtime_error("an audit hook of Python refuses the sandbox's hook: " +
                             takePythonError().message);
  }
  ::pthread_atfork(countFork, nullptr, nullptr);
}

void forbidProcessStarts() noexcept { forbidden.store(true, std::memory_order_relaxed); }

}  // namespace isopool::worker
