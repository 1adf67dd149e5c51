// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "client/transport/unawaited_watch.h"
#include "client/transport/worker_memory.h"
#include "ipc/channel/operation.h"
#include "ipc/channel/preparation.h"

namespace isopool::client {

/// The work of a channel's worker for this process that no thread waits for: notifications, and
/// requests that their threads have left. No thread gets an answer when such work is done. So its
/// progress is read from words in the worker's memory, and only while there is such work.
///
/// Sequence numbers are those of the channel. A worker takes requests in their order. What the
/// worker publishes may be invalid; at worst its own work is counted wrongly then.
///
/// No member blocks. A worker's death is not seen here: the channel's end makes it irrelevant.
class UnawaitedWork {
 public:
  /// `memory` must outlive this object.
  explicit UnawaitedWork(WorkerMemory& memory) : memory_(memory) {}

  /// How long a worker may run clean-up work; 0: without limit. `watch`: begins when there is such
  /// work and a limit, and by watch(). Call once, before the pool has the channel.
  void limitCleanup(std::chrono::nanoseconds limit, std::shared_ptr<UnawaitedWatch> watch) {
    limit_ = limit;
    watch_ = std::move(watch);
  }
  /// The worker serves other programs, too; `client` is its number for this one. Call once, before
  /// the pool has the channel.
  void share(uint64_t client) { client_ = client; }

  /// No thread waits for the request of this number. Any thread.
  void add(uint64_t sequence);
  /// The control thread looks at the worker from now on, as long as there is such work.
  void watch() {
    if (watch_) watch_->begin();
  }
  /// The request of this number was answered, so everything before it is done. Any thread.
  void answered(uint64_t sequence) {
    const uint64_t last = last_.load(std::memory_order_relaxed);
    if (last != 0 && last <= sequence) done(last);
  }
  /// True if some of it is not done. Any thread. Reads the worker's memory only if there may be
  /// such work.
  bool any() const;
  /// True if the worker makes objects for this process before a call needs them. The same.
  bool makesObjects() const;

  // The other members need the lock under which requests are published.

  /// Notes whether the request is clean-up work or a preparation that no call waits for.
  void published(uint64_t sequence, ipc::Operation operation, bool notification) {
    const bool defines =
        operation == ipc::Operation::kDefineObject || operation == ipc::Operation::kDefineMovable;
    if (notification && defines) lastDefinition_.store(sequence, std::memory_order_relaxed);
    mark(cleanups_, sequence, notification && isCleanup(operation));
    mark(preparations_, sequence, notification && ipc::isPreparation(operation));
  }
  /// True if clean-up work runs now. `published`: the number of the last published request.
  bool cleansUp(uint64_t published) const;

  /// Why the worker takes no requests.
  enum class Blocked {
    kByCleanup,      ///< it runs clean-up work
    kByPreparation,  ///< it makes an object before any call needs it
    kByNothing       ///< it runs no request, and takes none of those that wait
  };
  /// Why the worker is blocked, if it is so for longer than limitOf(); then the time is counted
  /// from zero again. Nothing if there is no limit. `now`: by base::RunningTime. Call about ten
  /// times a second.
  std::optional<Blocked> overLimit(uint64_t published, std::chrono::nanoseconds now);
  /// Ten times the limit for a preparation: loading a large object takes longer than releasing one.
  std::chrono::nanoseconds limitOf(Blocked blocked) const {
    return blocked == Blocked::kByPreparation ? 10 * limit_ : limit_;
  }
  /// The number of the last request that the worker has taken; `published` if the worker's counter
  /// is invalid.
  uint64_t taken(uint64_t published) const;
  std::chrono::nanoseconds cleanupLimit() const { return limit_; }

 private:
  static bool isCleanup(ipc::Operation operation) {
    return operation == ipc::Operation::kReleaseHandles ||
           operation == ipc::Operation::kForgetObject || operation == ipc::Operation::kNext;
  }
  static void mark(uint64_t& bits, uint64_t sequence, bool value) {
    const uint64_t bit = uint64_t{1} << (sequence % 64);
    // Written only on a change: other threads read words on the same cache line.
    if (value != ((bits & bit) != 0)) bits ^= bit;
  }
  static bool marked(uint64_t bits, uint64_t sequence) {
    return (bits >> (sequence % 64) & 1) != 0;
  }
  void done(uint64_t last) const;
  bool isDone(uint64_t sequence) const;
  bool runsOurs() const;
  std::optional<Blocked> blockedNow(uint64_t published, uint64_t taken) const;

  WorkerMemory& memory_;
  std::chrono::nanoseconds limit_{0};
  std::shared_ptr<UnawaitedWatch> watch_;
  uint64_t client_ = 0;                      // 0: the worker serves this process only
  mutable std::atomic<uint64_t> last_{0};    // the last request of such work; 0: all is done
  std::atomic<uint64_t> lastDefinition_{0};  // the last notification that makes an object; 0: none
  uint64_t cleanups_ = 0;                    // bit n % 64: request n is clean-up work
  uint64_t preparations_ = 0;                // the same of preparations that no call waits for
  uint64_t seenTaken_ = 0;                   // taken() at the last look
  std::optional<std::chrono::nanoseconds> blockedSince_;
};

}  // namespace isopool::client
