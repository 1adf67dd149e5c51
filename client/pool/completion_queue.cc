// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/completion_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/standard_streams.h"
#include "base/without_cancellation.h"
#include "isopool/errors.h"

namespace isopool {

CompletionState::CompletionState()
    : event_(base::awayFromStandardStreams(base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)))) {
  if (!event_.valid()) {
    throw Error(std::string("can't create an eventfd for a CompletionQueue: ") +
                std::strerror(errno));
  }
}

void CompletionState::push(uint64_t tag, const Outcome& outcome) {
  checkNotForked();
  const base::WithoutCancellation complete;
  base::MutexLock lock(mutex_);
  completed_.push_back({tag, outcome});
  const uint64_t one = 1;
  if (completed_.size() == 1) (void)!::write(event_.get(), &one, sizeof one);
}

std::vector<Completed> CompletionState::take() {
  checkNotForked();
  const base::WithoutCancellation complete;
  std::vector<Completed> taken;
  base::MutexLock lock(mutex_);
  uint64_t count = 0;
  if (!completed_.empty()) (void)!::read(event_.get(), &count, sizeof count);
  taken.swap(completed_);
  return taken;
}

int CompletionState::fd() const {
  checkNotForked();
  return event_.get();
}

CompletionQueue::CompletionQueue() : state_(client::makeForThisProcess<CompletionState>()) {}
CompletionQueue::~CompletionQueue() = default;

int CompletionQueue::fd() const { return state_->fd(); }
std::vector<Completed> CompletionQueue::take() { return state_->take(); }

}  // namespace isopool
