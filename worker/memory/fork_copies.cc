// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/fork_copies.h"

#include <pthread.h>

#include <deque>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ipc/memory/live_blocks.h"
#include "ipc/memory/private_image.h"
#include "worker/memory/channel_memory.h"
#include "worker/process/crash_log.h"
#include "worker/process/user_forks.h"

namespace isopool::worker {

namespace {

/// The handlers and what they know. Never destroyed.
class ForkHandlers {
 public:
  static ForkHandlers& instance() {
    static ForkHandlers& handlers = *new ForkHandlers;
    return handlers;
  }

  void begin(uint64_t limit) {
    limit_ = limit;
    ::pthread_atfork([] { instance().before(); }, [] { instance().inParent(); },
                     [] { instance().inChild(); });
  }
  void add(ChannelMemory& memory) {
    base::MutexLock lock(mutex_);
    memories_.push_back(&memory);
  }
  void remove(ChannelMemory& memory) noexcept {
    base::MutexLock lock(mutex_);
    std::erase(memories_, &memory);
  }

 private:
  // `mutex_` is held from before() until the fork is done.
  void before() noexcept ISOPOOL_LOCKS_UNCHECKED;
  void inParent() noexcept ISOPOOL_LOCKS_UNCHECKED;
  void inChild() noexcept ISOPOOL_LOCKS_UNCHECKED;
  void makeCopies() ISOPOOL_REQUIRES(mutex_);
  void refuse(const std::string& why) ISOPOOL_REQUIRES(mutex_);
  void hideAll() noexcept ISOPOOL_REQUIRES(mutex_);

  base::Mutex mutex_;
  uint64_t limit_ = 0;
  std::vector<ChannelMemory*> memories_ ISOPOOL_GUARDED_BY(mutex_);
  // Of the fork that is under way:
  bool listed_ ISOPOOL_GUARDED_BY(mutex_) = false;  // `shared_` is complete
  std::vector<ipc::LiveBlocks> shared_ ISOPOOL_GUARDED_BY(mutex_);
  std::deque<ipc::PrivateImage> images_ ISOPOOL_GUARDED_BY(mutex_);  // one of each, or none
};

void ForkHandlers::makeCopies() {
  uint64_t bytes = 0;
  for (ChannelMemory* memory : memories_) {
    memory->borrowed.addLive(shared_);
    memory->output.addLive(shared_);
  }
  listed_ = true;
  for (const ipc::LiveBlocks& each : shared_) bytes += each.liveBytes();
  if (bytes > limit_) {
    return refuse(std::to_string(bytes) +
                  " bytes are more than ISOPOOL_FORK_COPY_LIMIT allows to copy");
  }
  for (const ipc::LiveBlocks& each : shared_) {
    ipc::PrivateImage& image = images_.emplace_back(each.data, each.bytes);
    for (const auto& block : each.blocks) {
      if (!image.copy(block.data(), block.size())) {
        return refuse("there is no memory for a copy of " + std::to_string(bytes) + " bytes");
      }
    }
  }
}

void ForkHandlers::refuse(const std::string& why) {
  images_.clear();
  logError(
      "isopool worker: a process that user code forks has none of the tensors that are shared "
      "with programs, and an access to one ends it: " +
      why + "\n");
}

void ForkHandlers::before() noexcept {
  // The memory of a forked child is private already.
  if (isForkedChild() || limit_ == 0) return;
  mutex_.lock();
  listed_ = false;
  try {
    makeCopies();
  } catch (const std::bad_alloc&) {
    images_.clear();
  }
}

void ForkHandlers::inParent() noexcept {
  if (isForkedChild() || limit_ == 0) return;
  images_.clear();
  shared_.clear();
  mutex_.unlock();
}

void ForkHandlers::hideAll() noexcept {
  for (const ChannelMemory* memory : memories_) {
    const auto space = memory->output.arena().addressSpace();
    ipc::makeInaccessible(space.data(), space.size());
    for (const auto& segment : memory->inputs.all()) {
      if (segment != nullptr) {
        ipc::makeInaccessible(segment->mapping.data(), segment->mapping.bytes());
      }
    }
  }
}

// Makes system calls only. The child never uses this object again.
void ForkHandlers::inChild() noexcept {
  if (limit_ == 0) return;
  if (!listed_) hideAll();
  for (size_t i = 0; i < shared_.size(); ++i) {
    if (i < images_.size() && images_[i].putInPlace()) continue;
    ipc::makeInaccessible(shared_[i].data, shared_[i].bytes);
  }
  limit_ = 0;
}

}  // namespace

void copyTensorsInForks(uint64_t limit) { ForkHandlers::instance().begin(limit); }

CopiedInForks::CopiedInForks(ChannelMemory& memory) : memory_(memory) {
  ForkHandlers::instance().add(memory_);
}

CopiedInForks::~CopiedInForks() {
  // The mutex is as the fork left it.
  if (!isForkedChild()) ForkHandlers::instance().remove(memory_);
}

}  // namespace isopool::worker
