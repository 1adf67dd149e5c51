// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/callback_scope.h"

#include "base/mutex.h"
#include "client/program/process_fork.h"
#include "ipc/channel/futex.h"

namespace isopool::client {

namespace {

// Without destructors: callbacks run also while their thread or the program ends.
constinit thread_local CallbackThread* thisThread = nullptr;
constinit thread_local CallbackScope* innermost = nullptr;

// The waits of this process.
struct Waits {
  base::Mutex mutex;
  CallbackWait* first ISOPOOL_GUARDED_BY(mutex) = nullptr;
  uint64_t searches ISOPOOL_GUARDED_BY(mutex) = 0;
};
constinit PerProcess<Waits> waits;

}  // namespace

// ---- CallbackThread --------------------------------------------------------------------------

CallbackThread* CallbackThread::current() noexcept { return thisThread; }
void CallbackThread::setCurrent(CallbackThread* thread) noexcept { thisThread = thread; }

// ---- CallbackScope ---------------------------------------------------------------------------

CallbackScope::CallbackScope(const AsyncCall& call) noexcept : call_(call), outer_(innermost) {
  innermost = this;
  outermost_ = thisThread != nullptr && thisThread->since.load(std::memory_order_relaxed) == 0;
  if (outermost_) thisThread->since.store(ipc::monotonicNow(), std::memory_order_relaxed);
}

CallbackScope::~CallbackScope() {
  innermost = outer_;
  if (outermost_) thisThread->since.store(0, std::memory_order_relaxed);
}

bool CallbackScope::runs(const AsyncCall* call) noexcept {
  for (const CallbackScope* scope = innermost; scope != nullptr; scope = scope->outer_) {
    if (call == nullptr || &scope->call_ == call) return true;
  }
  return false;
}

// ---- CallbackWait ----------------------------------------------------------------------------

CallbackWait::CallbackWait(const AsyncCall* target, const AsyncExecutor* closed) noexcept
    : target_(target), closed_(closed), innermost_(innermost), thread_(thisThread) {
  Waits& all = waits.get();
  const base::MutexLock lock(all.mutex);
  next_ = all.first;
  if (next_ != nullptr) next_->previous_ = this;
  all.first = this;
}

CallbackWait::~CallbackWait() {
  Waits& all = waits.get();
  const base::MutexLock lock(all.mutex);
  (previous_ == nullptr ? all.first : previous_->next_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

// The thread of a wait changes no scope of its own meanwhile.
bool CallbackWait::runs(const AsyncCall& call) const noexcept {
  for (const CallbackScope* scope = innermost_; scope != nullptr; scope = scope->outer_) {
    if (&scope->call_ == &call) return true;
  }
  return false;
}

// True if `other` can't end before this one. An executor that is closed waits for the callbacks of
// all its threads but the one that closes it.
bool CallbackWait::delays(const CallbackWait& other) const noexcept {
  if (other.target_ != nullptr) return runs(*other.target_);
  return &other != this && thread_ != nullptr && &thread_->executor == other.closed_;
}

bool CallbackWait::canEnd() const {
  Waits& all = waits.get();
  const base::MutexLock lock(all.mutex);
  return !leadsTo(*this, ++all.searches);
}

// True if `wait` can't end before this one. Call with the lock of all waits.
bool CallbackWait::leadsTo(const CallbackWait& wait,
                           uint64_t search) const noexcept ISOPOOL_LOCKS_UNCHECKED {
  if (delays(wait)) return true;
  wait.search_ = search;
  for (const CallbackWait* each = waits.get().first; each != nullptr; each = each->next_) {
    if (each->search_ != search && each->delays(wait) && leadsTo(*each, search)) return true;
  }
  return false;
}

}  // namespace isopool::client
