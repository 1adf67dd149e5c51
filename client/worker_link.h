// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "client/archive_file.h"
#include "client/cancellation_token.h"
#include "client/deadline.h"
#include "client/defined_objects.h"
#include "client/process_fork.h"
#include "client/processor_load.h"
#include "client/request_draft.h"
#include "client/request_outcome.h"
#include "client/unawaited_work.h"
#include "client/unheard_calls.h"
#include "client/worker_memory.h"
#include "ipc/channel/copy_reason.h"
#include "ipc/channel/lease_table.h"
#include "ipc/channel/operation.h"
#include "ipc/channel/spin.h"
#include "ipc/tensor/value_codec.h"
#include "isopool/errors.h"

namespace isopool::client {

/// How long a payload may wait for room in an arena.
inline constexpr std::chrono::milliseconds kPayloadPatience(5000);

/// A value is of a kind that can't cross. Caught inside the library where that does not matter.
class UnsupportedValue : public Error {
 public:
  using Error::Error;
};

/// The worker does not have an object any more that this process believed to be there: another
/// thread unloaded it. Caught inside the library, which defines the object again.
class ObjectUnloaded : public Error {
 public:
  using Error::Error;
};

class WorkerLink;
class Migration;
struct PendingRequest;

/// The answer to a request. Until it is taken or destroyed it holds a slot of the channel, for
/// which other threads may wait: take no lock meanwhile.
class Answer {
 public:
  Answer(Answer&& other) noexcept;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  Answer& operator=(Answer&&) = delete;
  ~Answer();

  RequestOutcome outcome() const { return outcome_; }
  /// The request's number on its channel; 0 if it was not sent.
  uint64_t sequence() const { return sequence_; }
  /// The answer's value (nil for most operations). Throws RemoteError for a Python exception,
  /// ObjectUnloaded, and Error for any other refusal. Only if outcome() is kAnswered, and once.
  at::IValue take();

 private:
  friend class WorkerLink;
  Answer(std::shared_ptr<WorkerLink> channel, PendingRequest* request, uint64_t sequence,
         RequestOutcome outcome);
  void giveUpSlot();
  std::shared_ptr<WorkerLink> channel_;
  PendingRequest* request_;  // null if nothing was sent, the request was given up, or it was taken
  uint64_t sequence_;
  RequestOutcome outcome_;
};

/// This process's channel to one life of one worker: requests in, answers out, from any number of
/// threads. One waiting thread leads: it looks at the ring for all of them and sleeps on it; it
/// passes the lead on when its own answer is there.
///
/// In a process that was forked from the one that made it nothing is published: exchange() throws,
/// the others do nothing. The memory that it writes to is not mapped there.
///
/// When the worker dies every waiting thread learns it within a fraction of a millisecond, after
/// what the worker had finished was delivered. A channel never comes back: its successor has
/// another epoch.
class WorkerLink : public std::enable_shared_from_this<WorkerLink> {
 public:
  WorkerLink(std::shared_ptr<WorkerMemory> memory, int processId, base::Fd pidfd, base::Fd crashLog,
             bool livenessWordWorks, uint64_t connection);
  ~WorkerLink();
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;

  /// Sends the draft's body as `operation` and waits for the answer, the worker's death, the
  /// deadline, another thread's `cancellation`, or until `migration` has found another worker for a
  /// request that has not started. Throws Error if a value can't cross, ArenaFull, LimitExceeded.
  Answer exchange(ipc::Operation operation, RequestDraft& draft, const Deadline& deadline,
                  CancellationToken* cancellation = nullptr, Migration* migration = nullptr);
  /// Sends without waiting or blocking. Only for bodies without tensors that fit into a slot. False
  /// if the channel has no room now or is dead.
  bool notify(ipc::Operation operation, RequestDraft& draft);

  /// Lets objects of the worker go: with the next request, or by themselves when many have
  /// gathered. If there is no memory to note one, the worker keeps it as long as it lives.
  void releaseHandle(base::HandleId handle) noexcept;
  /// An Obj was made, whose handle releaseObj() lets go. With the last one all are sent at once:
  /// its program may make no further request, and the worker would keep what they refer to.
  void objMade() noexcept { objs_.fetch_add(1, std::memory_order_relaxed); }
  void releaseObj(base::HandleId handle) noexcept;
  base::HandleId nextHandle() { return base::HandleId(nextHandle_.fetch_add(1)); }

  bool dead() const { return dead_.load(std::memory_order_acquire); }
  /// True as soon as the worker is dead, whether that was seen and settled or not.
  bool workerDied() const;
  /// The worker of a dead channel and why it died.
  WorkerLost::Death death();
  /// Kills the worker, or has the supervisor of a shared one kill it. Its calls are settled by the
  /// death that follows.
  void kill(const std::string& reason);

  /// Ways to have a shared worker ended, by its supervisor.
  struct SharedWorker {
    std::function<void(const std::string& reason)> kill;
    /// A call runs past its deadline.
    std::function<void(uint64_t sequence)> overdue;
    uint64_t client = 0;  ///< the supervisor's number of us
  };
  /// The worker serves other programs, too. Said once, before the pool has the channel.
  void share(SharedWorker worker);
  /// True if the worker serves other programs, too.
  bool shared() const { return sharedWorker_.has_value(); }
  /// How much other programs ask of the worker just now; 0 if it is free, and in a private pool.
  uint32_t othersCalls() const;
  /// How long the worker may run clean-up work, which no thread waits for; then it is killed.
  /// `watch` begins when there is some. Call once, before the pool has the channel.
  void limitCleanup(std::chrono::nanoseconds limit, std::shared_ptr<UnawaitedWatch> watch) {
    unawaited_.limitCleanup(limit, std::move(watch));
  }
  /// Requests of this process that the worker has not ended. Work that no thread waits for counts
  /// as one. Costs a look at the worker's memory only if there is such work.
  uint32_t load() const;
  /// Of these, the ones that threads wait for.
  uint32_t awaited() const;
  /// True if a request was found waiting behind the one that runs, and nothing was answered since.
  bool held() const { return held_.load(std::memory_order_relaxed); }
  /// Kills the worker if it has run clean-up work, or kept requests waiting for nothing, for longer
  /// than limitCleanup() allows. To be called about ten times a second by threads that wait for it.
  void killIfBlocked();
  /// The same for a thread that looks after work that no thread waits for. False if there is none.
  bool lookAtUnawaitedWork();
  /// 0 unless the worker has run one request for a while, whosever it is, or has work that no
  /// thread waits for; then the more, the longer it has run what it runs: time so far is the best
  /// guess of the time to come, and only a factor of ten tells two workers apart. Looks at the
  /// worker's memory.
  uint32_t occupied() const;
  /// True if the worker runs clean-up work: releases, the close of a stream, an unload.
  bool cleansUp();
  /// The supervisor lets the request of this number run no longer: its exchange() throws
  /// LimitExceeded with this text, if it still waits.
  void callTimeOver(uint64_t sequence, const std::string& text);
  /// From here on requests throw SupervisorLost with this text; those in flight end as they do.
  void refuseRequests(const std::string& text);
  /// The worker lives on, and has unmapped all that it had of this process.
  void detached();
  /// True while the worker has blocks of ours.
  bool hasLoans() const { return loans_.outstanding() > 0; }
  /// Ends the channel without the worker's death having been seen here: its supervisor reaped it or
  /// is gone. Settles all calls.
  void markDead();
  /// Nobody of the worker can reach memory any more: what was lent to it is free.
  void reaped(int signal, int exitCode);
  /// True once the worker's process is gone for good; waits for that up to `patience`.
  bool processGone(std::chrono::milliseconds patience = std::chrono::milliseconds(0)) const;
  /// Called when the death is first seen by a waiting thread, without a reason, and before kill()
  /// kills a worker that nobody else uses, with its reason.
  void onDeath(std::function<void(const std::string& reason)> callback) {
    deathReport_ = std::move(callback);
  }

  base::Epoch epoch() const { return memory_->end().epoch(); }
  int processId() const { return processId_; }
  WorkerMemory& memory() { return *memory_; }
  /// From now on the worker is the one of that slot; said once, before the pool has the channel.
  void assume(uint32_t pool, uint32_t slot);
  /// The pool and slot that it serves; nothing while it is a spare.
  struct Place {
    uint32_t pool;
    uint32_t slot;
  };
  std::optional<Place> place();
  /// The same slot for whoever has the channel from its pool.
  uint32_t slot() const { return slot_; }
  std::string name();

  /// Held by the thread that prepares the worker, for as long as that takes: whoever has a deadline
  /// waits for it with that.
  std::recursive_timed_mutex& preparation() { return preparation_; }
  /// Objects that this worker has unpickled. Added under preparation().
  DefinedObjects definedObjects;
  std::atomic<bool> configured{false};  ///< the environment was applied. Set under preparation().
  /// How many registered modules the worker was given. Changed under preparation().
  std::atomic<size_t> taughtModules{0};

 private:
  friend class Answer;
  friend class Migration;
  friend class CancellationToken;

  void exportStorages(RequestDraft& draft, const Deadline& deadline);
  ipc::StorageRecord exportStorage(const c10::Storage& storage, ipc::StorageExtent extent,
                                   ExportedStorage& exported, const Deadline& deadline);
  ipc::StorageRecord exportCopy(const c10::Storage& storage, ipc::StorageExtent extent,
                                ipc::CopyReason reason, ExportedStorage& exported,
                                const Deadline& deadline);
  std::optional<ipc::StorageRecord> lend(const c10::Storage& storage, ExportedStorage& exported);
  c10::Storage copyToArena(const std::byte* data, uint64_t bytes, const Deadline& deadline);
  void cancelExports(std::vector<ExportedStorage>& exports);
  void collectReturnedLeases();

  struct Published {
    PendingRequest* request;  ///< null: it was not published, for the reason in `outcome`
    RequestOutcome outcome;
  };
  Published publish(ipc::Operation operation, RequestDraft& draft, const Deadline& deadline,
                    bool workerMaySpin, CancellationToken* cancellation);
  void placePayload(std::span<const std::byte> payload, ipc::OutgoingPayload& place, void*& blob,
                    const Deadline& deadline);
  void tryFlushReleases() noexcept;
  bool flushReleases() noexcept;
  void publishNotification(ipc::OutgoingCall& call);
  /// How a wait ended. `abandoned`: the request is no longer its thread's.
  struct Waited {
    RequestOutcome outcome;
    bool abandoned;
  };
  Waited wait(PendingRequest& request, const Deadline& deadline,
              const CancellationToken* cancellation, Migration* migration,
              std::optional<ProcessorLoad::Spinner>& spinner);
  void lead(PendingRequest& request, const Deadline& deadline,
            const CancellationToken* cancellation, const Migration* migration,
            std::optional<ProcessorLoad::Spinner>& spinner);
  bool migrates(PendingRequest& request, Migration& migration);
  bool deliverCompletions();
  bool deliver(PendingRequest& request);
  void discard(PendingRequest& request);
  void deliverUnlessLed();
  void passLead();
  void settleAll();
  std::optional<RequestOutcome> giveUp(PendingRequest& request, bool takenBack);
  void wakeWaiter(PendingRequest& request);
  void killIfStuck(uint64_t sequence, Clock::time_point calledAt);
  bool hangsInPreparation(Clock::time_point now) const;
  void killBecause(const std::string& reason);
  bool timeIsOver(uint64_t sequence) const {
    return timeOver_.load(std::memory_order_acquire) == sequence;
  }
  void release(PendingRequest& request);
  void poison(const std::string& reason);
  void readDeath();
  bool causeKnown();
  std::vector<c10::Storage> importStorages(const PendingRequest& request,
                                           const ipc::PayloadReader& reader);

  const uint32_t generation_ = forkGeneration();
  const std::shared_ptr<WorkerMemory> memory_;
  const int processId_;
  const base::Fd pidfd_;
  const base::Fd crashLog_;
  const bool livenessWordWorks_;
  const uint64_t connection_;  // that introduced the worker
  std::optional<SharedWorker> sharedWorker_;
  ipc::LeaseTable loans_;
  std::function<void(const std::string&)> deathReport_;

  std::mutex publishMutex_;
  std::condition_variable slotFreed_;
  std::array<std::unique_ptr<PendingRequest>, ipc::kRingSlots> pendingRequests_;
  uint64_t nextSequence_ = 1;  // as ClientEnd counts
  std::string refusal_;        // guarded by publishMutex_
  UnheardCalls unheard_;       // guarded by publishMutex_
  std::vector<uint64_t> releases_;
  std::mutex releasesMutex_;
  std::atomic<uint32_t> releasesWaiting_{0};
  std::atomic<uint32_t> objs_{0};  // that are alive

  std::mutex leadMutex_;
  ipc::SpinBudget spin_;              // guarded by leadMutex_
  ipc::ReceivedCompletion received_;  // guarded by leadMutex_
  std::atomic<uint32_t> pending_{0};
  std::atomic<int32_t> abandoned_{0};  // of pending_, those that their threads have left
  std::atomic<int> callsUnderWay_{0};  // from before they are published until their threads go on
  std::atomic<bool> poisoned_{false};
  std::atomic<uint64_t> timeOver_{0};  // the last request that ran for as long as one may
  std::string timeOverText_;           // guarded by deathMutex_

  std::atomic<bool> ended_{false};  // nothing more will come: the leader is to settle all calls
  mutable std::atomic<bool> deathSeen_{false};  // here, before the supervisor told it
  std::atomic<bool> dead_{false};               // that is done
  // The pool looks at these three for each call: apart from what each call changes.
  std::atomic<bool> held_{false};
  UnawaitedWork unawaited_;  // in part guarded by publishMutex_
  std::atomic<uint64_t> nextHandle_{1};
  std::mutex deathMutex_;
  std::condition_variable causeTold_;
  WorkerLost::Death death_;
  bool deathRead_ = false;
  std::string name_;
  std::optional<Place> place_;
  uint32_t slot_ = 0;  // set before a pool has the channel

  std::recursive_timed_mutex preparation_;
};

}  // namespace isopool::client
