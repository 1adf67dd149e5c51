// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/worker_link.h"
#include "ipc/channel/client_end.h"
#include "ipc/channel/futex.h"

namespace isopool::client {

/// One request in flight, in the channel's slot of its sequence number.
struct PendingRequest {
  enum class Use : uint8_t {
    kFree,
    kWaiting,     ///< its thread waits
    kDelivering,  ///< the leader writes into it
    kDelivered,   ///< its thread reads the answer
    kAbandoned,   ///< its thread has left; whoever finds it settled frees it
  };
  std::atomic<Use> use{Use::kFree};
  std::atomic<RequestOutcome> outcome{RequestOutcome::kPending};
  ipc::SharedWord<uint32_t> signal{0};  // a futex of this process: look again
  std::atomic<bool> asleep{false};      // its thread sleeps, or is about to, on signal
  uint64_t sequence = 0;
  ipc::Operation operation{};
  Clock::time_point publishedAt;  // if it has a deadline
  Clock::time_point leftAt;       // when the thread of an abandoned preparation left
  std::vector<ExportedStorage> exports;
  void* requestBlob = nullptr;
  ipc::ReceivedCompletion completion;
  std::vector<std::byte> answerBlob;

  std::span<const std::byte> answerBytes() const {
    if (!answerBlob.empty()) return answerBlob;
    return {completion.bytes, completion.payload.inlineBytes};
  }
  // Most answers are delivered by the very thread that waits for them: it needs no system call.
  void wake() {
    // Partner: sleep(). Either it sees the new signal or we see that it sleeps.
    signal.fetch_add(1, std::memory_order_seq_cst);
    if (asleep.load(std::memory_order_seq_cst)) ipc::futexWake(signal);
  }
  void sleep(uint32_t seen, std::chrono::nanoseconds timeout) {
    asleep.store(true, std::memory_order_seq_cst);
    const ipc::FutexWatch watch{&signal, seen};
    if (signal.load(std::memory_order_seq_cst) == seen) ipc::futexWait({&watch, 1}, timeout);
    asleep.store(false, std::memory_order_relaxed);
  }
};

}  // namespace isopool::client
