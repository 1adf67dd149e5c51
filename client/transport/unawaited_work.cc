// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/unawaited_work.h"

#include <utility>

namespace isopool::client {

void UnawaitedWork::add(uint64_t sequence) {
  uint64_t last = last_.load(std::memory_order_relaxed);
  while (last < sequence && !last_.compare_exchange_weak(last, sequence)) {
  }
  if (limit_.count() != 0) watch();
}

// Has no effect if more work was added meanwhile.
void UnawaitedWork::done(uint64_t last) const { last_.compare_exchange_strong(last, 0); }

// A worker sets its status page before it takes a request and clears it when the request is done.
bool UnawaitedWork::runsOurs() const {
  const ipc::WorkerStatusPage* statusPage = memory_.statusPage();
  if (statusPage == nullptr) return false;
  const uint64_t running = statusPage->runningClient.load(std::memory_order_relaxed);
  return client_ == 0 ? running != 0 : running == client_;
}

bool UnawaitedWork::any() const {
  const uint64_t last = last_.load(std::memory_order_relaxed);
  if (last == 0) return false;
  if (!isDone(last)) return true;
  done(last);
  return false;
}

bool UnawaitedWork::makesObjects() const {
  const uint64_t last = lastDefinition_.load(std::memory_order_relaxed);
  return last != 0 && !isDone(last);
}

bool UnawaitedWork::isDone(uint64_t sequence) const {
  const uint32_t taken = memory_.end().peer().submissionHead.load(std::memory_order_acquire);
  const auto left = static_cast<int32_t>(static_cast<uint32_t>(sequence) - taken);
  return left < 0 || (left == 0 && !runsOurs());
}

uint64_t UnawaitedWork::taken(uint64_t published) const {
  const uint32_t taken = memory_.end().peer().submissionHead.load(std::memory_order_acquire);
  const uint32_t left = static_cast<uint32_t>(published) - taken;
  return left <= ipc::kRingSlots ? published - left : published;
}

bool UnawaitedWork::cleansUp(uint64_t published) const {
  return marked(cleanups_, taken(published)) && runsOurs();
}

std::optional<UnawaitedWork::Blocked> UnawaitedWork::blockedNow(uint64_t published,
                                                                uint64_t taken) const {
  if (memory_.statusPage()->runningClient.load(std::memory_order_relaxed) == 0) {
    if (taken != published) return Blocked::kByNothing;
  } else if (runsOurs()) {
    if (marked(cleanups_, taken)) return Blocked::kByCleanup;
    if (marked(preparations_, taken)) return Blocked::kByPreparation;
  }
  return std::nullopt;
}

std::optional<UnawaitedWork::Blocked> UnawaitedWork::overLimit(uint64_t published,
                                                               std::chrono::nanoseconds now) {
  if (limit_.count() == 0 || memory_.statusPage() == nullptr) return std::nullopt;
  const uint64_t takenNow = taken(published);
  const std::optional<Blocked> blocked = blockedNow(published, takenNow);
  if (std::exchange(seenTaken_, takenNow) != takenNow || !blocked) {
    blockedSince_.reset();
    return std::nullopt;
  }
  if (!blockedSince_) blockedSince_ = now;
  if (now - *blockedSince_ < limitOf(*blocked)) return std::nullopt;
  blockedSince_ = now;
  return blocked;
}

}  // namespace isopool::client
