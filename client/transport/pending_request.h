// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/running_time.h"
#include "client/transport/worker_link.h"
#include "ipc/channel/client_end.h"
#include "ipc/channel/futex.h"

namespace isopool::client {

/// One request in flight. It occupies the slot of its WorkerLink that its sequence number selects;
/// the link owns the slots and reuses them. `use` decides which thread may read and write the rest:
/// in kWaiting and kDelivered the thread that made the request, in kDelivering the leader, in
/// kAbandoned the thread that settles the request. Only the thread that holds the link's
/// publishMutex_ moves a slot away from kFree.
///
/// `outcome` is stored last when a request is settled: with it the request belongs to its thread
/// again, which may free the slot at once.
struct PendingRequest {
  enum class Use : uint8_t {
    kFree,
    kWaiting,     ///< its thread waits
    kDelivering,  ///< the leader writes the answer into it
    kDelivered,   ///< its thread reads the answer
    kAbandoned,   ///< its thread has left; the thread that settles it frees it
  };
  std::atomic<Use> use{Use::kFree};
  std::atomic<RequestOutcome> outcome{RequestOutcome::kPending};
  ipc::SharedWord<uint32_t> signal{0};  // a futex of this process: changes when to look again
  std::atomic<bool> asleep{false};      // its thread sleeps on `signal` or is about to
  uint64_t sequence = 0;
  ipc::Operation operation{};
  bool continuesPastDeadline = false;               // a preparation that later requests need
  std::optional<std::chrono::nanoseconds> runTime;  // see RequestDraft
  base::RunningTime time;                           // since it was published; looks while it waits
  std::optional<std::chrono::nanoseconds> runEnds;  // of `time`, once the worker is seen to run it
  std::chrono::nanoseconds mayRun{0};               // until its deadline, of `time`
  std::chrono::nanoseconds publishedAt{0};          // of WorkerLink::time_, if it has a deadline
  std::chrono::nanoseconds leftAt{0};  // the same, when the thread of an abandoned preparation left
  std::vector<ExportedStorage> exports;  // alive until the request has ended, for echoes
  // Of the tensors that the worker may write to, by their numbers in the request; others disabled.
  ipc::VersionCounters versions;
  void* requestBlob = nullptr;  // a block of the input arena with one reference; null: inline
  ipc::ReceivedCompletion completion;
  std::vector<std::byte> answerBlob;  // a private copy: the worker may reuse its blob
  bool answerUnknown = false;         // the answer lies in memory that an unread message announces
  Deadline takenUntil;                // of Answer::take()

  // Private memory, so the worker can't change it. The content is untrusted.
  std::span<const std::byte> answerBytes() const {
    if (!answerBlob.empty()) return answerBlob;
    return {completion.bytes, completion.payload.inlineBytes};
  }
  // Makes the waiting thread look again. A system call only if that thread sleeps: most answers are
  // delivered by the very thread that waits for them.
  void wake() {
    // Pairs with sleep(): either sleep() sees the new `signal`, or this thread sees `asleep`.
    signal.fetch_add(1, std::memory_order_seq_cst);
    if (asleep.load(std::memory_order_seq_cst)) ipc::futexWake(signal);
  }
  // Sleeps until wake(), at most for `timeout`; not at all if `signal` is no longer `seen`.
  void sleep(uint32_t seen, std::chrono::nanoseconds timeout) {
    asleep.store(true, std::memory_order_seq_cst);
    const ipc::FutexWatch watch{&signal, seen};
    if (signal.load(std::memory_order_seq_cst) == seen) ipc::futexWait({&watch, 1}, timeout);
    asleep.store(false, std::memory_order_relaxed);
  }
};

}  // namespace isopool::client
