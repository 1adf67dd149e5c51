// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/fork_copies.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "base/without_cancellation.h"
#include "client/program/event_log.h"
#include "client/program/process_fork.h"
#include "client/transport/worker_memory.h"
#include "ipc/memory/private_image.h"

namespace isopool::client {

namespace {

// A thread that is in the middle of a change of the records needs microseconds. It may be the
// thread that forks, if that is in a signal handler: then the child does without the records.
constexpr int kTriesToLock = 2000;
constexpr timespec kBetweenTries{0, 1'000'000};

// How long a child may take to copy: in turns, so that a time in which both processes were stopped
// counts as one turn.
constexpr int kTurn = 100;  // ms
constexpr int kTurns = 300;

enum class Plan : uint8_t {
  kNothing,  ///< nothing is shared, or it stays shared
  kCopy,
  kNone,  ///< the child gets none of the memory
};

/// One fork that is under way.
struct Fork {
  Plan plan = Plan::kNothing;
  bool locked = false;
  bool arenaLocked = false;
  int parentsEnd = -1;
  int childsEnd = -1;
  uint64_t bytes = 0;
  const char* reason = "";  ///< of kNone
  Fork* next = nullptr;
};

// Of the thread that forks: the handlers have no arguments.
constinit thread_local Fork currentFork;

ISOPOOL_LOCKS_UNCHECKED bool lockSoon(base::Mutex& mutex) noexcept {
  for (int i = 0; i < kTriesToLock; ++i) {
    if (mutex.try_lock()) return true;
    ::nanosleep(&kBetweenTries, nullptr);
  }
  return false;
}

}  // namespace

/// The handlers, and what they know of this process's shared memory. Never destroyed. A child
/// starts with an empty one.
class ForkHandlers {
 public:
  static ForkHandlers& instance() {
    static constinit ForkHandlers handlers;
    return handlers;
  }

  // `mutex_` is held from before() until the fork is done, and not while the parent waits.
  void before() noexcept ISOPOOL_LOCKS_UNCHECKED;
  void inParent() noexcept ISOPOOL_LOCKS_UNCHECKED;
  void inChild() noexcept ISOPOOL_LOCKS_UNCHECKED;

  void setArena(ipc::PageArena& arena, uint64_t limit) noexcept {
    base::MutexLock lock(mutex_);
    arena_ = &arena;
    limit_ = limit;
  }
  void add(CopiedInForks& range) noexcept {
    base::MutexLock lock(mutex_);
    range.next_ = ranges_;
    if (ranges_ != nullptr) ranges_->previous_ = &range;
    ranges_ = &range;
  }
  void remove(CopiedInForks& range) noexcept {
    base::MutexLock lock(mutex_);
    (range.previous_ != nullptr ? range.previous_->next_ : ranges_) = range.next_;
    if (range.next_ != nullptr) range.next_->previous_ = range.previous_;
  }
  bool copying() const noexcept { return copying_.load(std::memory_order_seq_cst) != 0; }
  void returnLater(LentBlock* block) noexcept {
    {
      base::MutexLock lock(mutex_);
      if (copying()) {
        block->next = returns_;
        returns_ = block;
        return;
      }
    }
    returnLentBlock(block);
  }

 private:
  Plan planFor(Fork& fork) noexcept ISOPOOL_LOCKS_UNCHECKED;
  bool copyAll() noexcept ISOPOOL_LOCKS_UNCHECKED;
  bool copyRange(const CopiedInForks& range) noexcept;
  void hideAll() noexcept;
  void finish(Fork& fork) noexcept;

  base::Mutex mutex_;
  ipc::PageArena* arena_ = nullptr;
  uint64_t limit_ = 0;
  CopiedInForks* ranges_ = nullptr;
  Fork* forks_ = nullptr;             // that children copy for now
  std::atomic<uint32_t> copying_{0};  // their number; changed under mutex_
  LentBlock* returns_ = nullptr;      // when there are none
};

// ---- before the fork --------------------------------------------------------------------------

Plan ForkHandlers::planFor(Fork& fork) noexcept {
  fork.bytes = arena_->bytesInUseLocked();
  for (const CopiedInForks* range = ranges_; range != nullptr; range = range->next_) {
    if (range->lent_ == nullptr) {
      fork.bytes += range->bytes_;
      continue;
    }
    if (range->lent_->count() == 0) continue;
    range->lent_->forEach([&](const std::byte* data, size_t bytes) {
      if (data >= range->data_ && data < range->data_ + range->bytes_) fork.bytes += bytes;
    });
  }
  if (fork.bytes == 0) return Plan::kNothing;
  if (fork.bytes > limit_) {
    fork.reason = "they are more than ISOPOOL_FORK_COPY_LIMIT allows to copy";
    return Plan::kNone;
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    fork.reason = "there was no descriptor for the socket by which the parent waits for the copy";
    return Plan::kNone;
  }
  fork.parentsEnd = ends[0];
  fork.childsEnd = ends[1];
  return Plan::kCopy;
}

void ForkHandlers::before() noexcept {
  const base::WithoutCancellation complete;
  Fork& fork = currentFork;
  fork = Fork();
  fork.locked = lockSoon(mutex_);
  if (!fork.locked || arena_ == nullptr || limit_ == 0) return;
  // From here on no lease is returned, see LentBlocks::remove().
  copying_.fetch_add(1, std::memory_order_seq_cst);
  if (lockSoon(arena_->recordsMutex())) {
    fork.plan = planFor(fork);
    fork.arenaLocked = fork.plan == Plan::kCopy;
    if (!fork.arenaLocked) arena_->recordsMutex().unlock();
  } else {
    fork.plan = Plan::kNone;
    fork.reason = "the records of this memory were locked, perhaps by the thread that forked";
  }
  if (fork.plan == Plan::kNothing) {
    copying_.fetch_sub(1, std::memory_order_seq_cst);
  } else {
    fork.next = forks_;
    forks_ = &fork;
  }
  if (fork.plan == Plan::kCopy) arena_->keepFreedBlocks();
}

// ---- in the parent ----------------------------------------------------------------------------

void ForkHandlers::inParent() noexcept {
  const base::WithoutCancellation complete;
  Fork& fork = currentFork;
  // Under the mutex, as all that changes `forks_`: no child gets the number of a closed descriptor.
  // If the fork has failed, no process has this end, and the wait ends at once.
  if (fork.plan == Plan::kCopy) ::close(std::exchange(fork.childsEnd, -1));
  if (fork.arenaLocked) arena_->recordsMutex().unlock();
  if (fork.locked) mutex_.unlock();
  if (fork.plan == Plan::kNothing) return;
  if (fork.plan == Plan::kNone) {
    finish(fork);
    try {
      logEvent(LogLevel::kWarning, [&] {
        return "a forked child process has none of the " + std::to_string(fork.bytes) +
               " bytes of tensors in memory shared with workers, and an access to one ends it: " +
               fork.reason;
      });
    } catch (const std::exception&) {
      // No memory for the text.
    }
    return;
  }
  pollfd wait{fork.parentsEnd, POLLIN, 0};
  for (int turn = 0; turn < kTurns; ++turn) {
    const int ready = ::poll(&wait, 1, kTurn);
    if (ready > 0 || (ready < 0 && errno != EINTR)) break;
  }
  {
    // Before blocks are used again: a child that is late notices that this end is closed.
    base::MutexLock lock(mutex_);
    ::close(std::exchange(fork.parentsEnd, -1));
  }
  arena_->releaseFreedBlocks();
  finish(fork);
}

void ForkHandlers::finish(Fork& fork) noexcept {
  LentBlock* returned = nullptr;
  {
    base::MutexLock lock(mutex_);
    for (Fork** each = &forks_; *each != nullptr; each = &(*each)->next) {
      if (*each != &fork) continue;
      *each = fork.next;
      break;
    }
    if (copying_.fetch_sub(1, std::memory_order_seq_cst) == 1) {
      returned = std::exchange(returns_, nullptr);
    }
  }
  while (returned != nullptr) returnLentBlock(std::exchange(returned, returned->next));
}

// ---- in the child -----------------------------------------------------------------------------

bool ForkHandlers::copyRange(const CopiedInForks& range) noexcept {
  ipc::PrivateImage image(range.data_, range.bytes_);
  bool all = true;
  if (range.lent_ == nullptr) {
    all = image.copy(range.data_, range.bytes_);
  } else {
    range.lent_->forEach([&](const std::byte* data, size_t bytes) {
      if (data < range.data_ || data >= range.data_ + range.bytes_) return;
      all = all && image.copy(data, bytes);
    });
  }
  return all && image.putInPlace();
}

bool ForkHandlers::copyAll() noexcept {
  for (const CopiedInForks* range = ranges_; range != nullptr; range = range->next_) {
    if (!copyRange(*range)) return false;
  }
  return arena_->becomePrivate();
}

void ForkHandlers::hideAll() noexcept {
  for (const CopiedInForks* range = ranges_; range != nullptr; range = range->next_) {
    ipc::makeInaccessible(range->data_, range->bytes_);
  }
  ipc::makeInaccessible(arena_->addressSpace().data(), arena_->addressSpace().size());
}

void ForkHandlers::inChild() noexcept {
  const base::WithoutCancellation complete;
  Fork& fork = currentFork;
  if (fork.plan == Plan::kCopy) {
    const char done = 1;
    if (!copyAll()) {
      hideAll();
      constexpr std::string_view kText =
          "isopool: a forked child process has no memory for a copy of its parent's tensors in "
          "memory shared with workers: an access to one ends it\n";
      static_cast<void>(!::write(STDERR_FILENO, kText.data(), kText.size()));
    } else if (::send(fork.childsEnd, &done, sizeof done, MSG_NOSIGNAL) != sizeof done) {
      // The parent has not waited so long: blocks may have been used again before they were copied.
      hideAll();
    }
  } else if (fork.plan == Plan::kNone) {
    hideAll();
  }
  if (fork.locked) {
    // Also of other forks: their parents would wait for this process, too.
    for (const Fork* each = forks_; each != nullptr; each = each->next) {
      for (const int end : {each->parentsEnd, each->childsEnd}) {
        if (end != -1) ::close(end);
      }
    }
  }
  // What the parent shares with workers, this process does not. Another thread of the parent may
  // have held the mutex.
  new (&mutex_) base::Mutex;
  arena_ = nullptr;
  ranges_ = nullptr;
  forks_ = nullptr;
  returns_ = nullptr;
  copying_.store(0, std::memory_order_relaxed);
}

namespace {

// Registered when the library is loaded, as in client/program/process_fork.cc.
[[maybe_unused]] const int registered = ::pthread_atfork(
    [] { ForkHandlers::instance().before(); }, [] { ForkHandlers::instance().inParent(); },
    [] { ForkHandlers::instance().inChild(); });

}  // namespace

// ---- what is shared ---------------------------------------------------------------------------

void LentBlocks::add(uint32_t lease, const void* data, size_t bytes) noexcept {
  const auto page = reinterpret_cast<uintptr_t>(data) / ipc::kPageBytes;
  count_.fetch_add(1, std::memory_order_relaxed);
  entries_[lease].store(page << kPagesBits | ipc::roundUpToPages(bytes) / ipc::kPageBytes,
                        std::memory_order_release);
}

// Pairs with ForkHandlers::before(), which counts the fork and then reads the entries: if it has
// read this one, the fork is seen here.
bool LentBlocks::remove(uint32_t lease) noexcept {
  entries_[lease].exchange(0, std::memory_order_seq_cst);
  count_.fetch_sub(1, std::memory_order_relaxed);
  return !ForkHandlers::instance().copying();
}

CopiedInForks::CopiedInForks(std::byte* data, size_t bytes, const LentBlocks* lent) noexcept
    : data_(data), bytes_(bytes), lent_(lent), generation_(forkGeneration()) {
  ForkHandlers::instance().add(*this);
}

CopiedInForks::~CopiedInForks() {
  // In a forked child it is in no list.
  if (generation_ == forkGeneration()) ForkHandlers::instance().remove(*this);
}

void copyArenaInForks(ipc::PageArena& arena, uint64_t limit) noexcept {
  ForkHandlers::instance().setArena(arena, limit);
}

void returnAfterForks(LentBlock* block) noexcept { ForkHandlers::instance().returnLater(block); }

}  // namespace isopool::client
