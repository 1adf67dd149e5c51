// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/liveness_word.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <new>

#include "base/system_call.h"
#include "ipc/memory/memory_object.h"

namespace isopool::ipc {

namespace {

// glibc keeps a mutex's futex word in its first member; livenessWordWorksHere() tests it.
static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0);

const SharedWord<uint32_t>& wordOf(const WorkerControl& control) {
  return reinterpret_cast<const SharedWord<uint32_t>&>(control.life);
}

}  // namespace

void holdLivenessWord(WorkerControl& control) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  int error = ::pthread_mutex_init(&control.life, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  if (error == 0) error = ::pthread_mutex_lock(&control.life);
  if (error != 0) throw base::SystemCallError("pthread_mutex_lock", "liveness word", error);
  const_cast<SharedWord<uint32_t>&>(wordOf(control)).fetch_or(FUTEX_WAITERS);
}

bool leaveLivenessWord(WorkerControl& control) noexcept {
  static_assert(offsetof(WorkerControl, life) + sizeof(pthread_mutex_t) <= kPageBytes);
  const uint32_t holder = wordOf(control).load(std::memory_order_relaxed) & FUTEX_TID_MASK;
  if (holder != static_cast<uint32_t>(::gettid())) return false;
  // Makes the page private first: so no other process sees the word unlocked, and the race of
  // robust unlocking can't happen, because no other thread uses this copy of the word.
  return privatisePages(&control, kPageBytes) && ::pthread_mutex_unlock(&control.life) == 0;
}

bool livenessWordOwnerDied(const WorkerControl& control) noexcept {
  return (wordOf(control).load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0;
}

FutexWatch watchLivenessWord(const WorkerControl& control) noexcept {
  return {&wordOf(control), wordOf(control).load(std::memory_order_acquire)};
}

bool livenessWordWorksHere() {
  const base::Fd object = createMemoryObject("isopool:liveness-word-test", kWorkerControlBytes);
  const Mapping mapping =
      mapShared(object, 0, kWorkerControlBytes, Access::kReadWrite, Prefault::kNo);
  auto* control = new (mapping.data()) WorkerControl;
  const pid_t child = ::fork();
  if (child == -1) return false;
  if (child == 0) {
    holdLivenessWord(*control);
    control->attached.store(1);
    futexWake(control->attached);
    for (;;) ::pause();
  }
  const int64_t deadline = monotonicNow() + 100'000'000;
  while (control->attached.load() == 0 && monotonicNow() < deadline) {
    const FutexWatch attached{&control->attached, 0};
    futexWait({&attached, 1}, std::chrono::milliseconds(10));
  }
  const FutexWatch life = watchLivenessWord(*control);
  ::kill(child, SIGKILL);
  const int64_t killed = monotonicNow();
  while (!livenessWordOwnerDied(*control) && monotonicNow() < killed + 100'000'000) {
    futexWait({&life, 1}, std::chrono::milliseconds(100));
  }
  const bool woken = livenessWordOwnerDied(*control) && monotonicNow() < killed + 90'000'000;
  ::waitpid(child, nullptr, 0);
  return woken;
}

}  // namespace isopool::ipc
