// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/user_threads.h"

#include <new>
#include <utility>

#include "ipc/channel/futex.h"
#include "worker/python/py_ref.h"

namespace isopool::worker {

namespace {

constexpr int64_t kTimeToEnd = 1'000'000'000;  // ns

// While this thread holds the GIL, no other one removes its state. A new one is put in front.
template <typename Step>
void forEachThread(Step&& step) {
  for (PyThreadState* each = ::PyInterpreterState_ThreadHead(::PyInterpreterState_Get());
       each != nullptr; each = ::PyThreadState_Next(each)) {
    step(each);
  }
}

bool runsPython(PyThreadState* thread) {
  return static_cast<bool>(
      PyRef::steal(reinterpret_cast<PyObject*>(::PyThreadState_GetFrame(thread))));
}

}  // namespace

uint64_t UserThreads::newestThread() noexcept {
  return ::PyThreadState_GetID(::PyInterpreterState_ThreadHead(::PyInterpreterState_Get()));
}

void UserThreads::note(uint64_t client) noexcept {
  std::map<uint64_t, uint64_t> alive;
  const PyThreadState* const own = ::PyThreadState_Get();
  try {
    forEachThread([&](PyThreadState* thread) {
      if (thread == own) return;
      const uint64_t number = ::PyThreadState_GetID(thread);
      const auto found = owners_.find(number);
      alive[number] = found != owners_.end() ? found->second : client;
    });
  } catch (const std::bad_alloc&) {
    return;  // the next call notes them
  }
  owners_ = std::move(alive);
  newestSeen_ = newestThread();
}

void UserThreads::left(uint64_t client) {
  departed_.insert(client);
  look_ = ipc::monotonicNow() + kTimeToEnd;
}

size_t UserThreads::leftBehind() {
  look_.reset();
  size_t count = 0;
  forEachThread([&](PyThreadState* thread) {
    const auto found = owners_.find(::PyThreadState_GetID(thread));
    if (found == owners_.end() || departed_.count(found->second) == 0) return;
    count += runsPython(thread) ? 1 : 0;
  });
  departed_.clear();
  return count;
}

}  // namespace isopool::worker
