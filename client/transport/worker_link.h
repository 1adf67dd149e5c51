// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/running_time.h"
#include "client/models/archive_file.h"
#include "client/program/process_fork.h"
#include "client/program/processor_load.h"
#include "client/transport/answer.h"
#include "client/transport/cancellation_token.h"
#include "client/transport/deadline.h"
#include "client/transport/defined_objects.h"
#include "client/transport/input_arena.h"
#include "client/transport/input_versions.h"
#include "client/transport/request_draft.h"
#include "client/transport/request_outcome.h"
#include "client/transport/unawaited_work.h"
#include "client/transport/unheard_calls.h"
#include "client/transport/worker_memory.h"
#include "ipc/channel/copy_reason.h"
#include "ipc/channel/lease_table.h"
#include "ipc/channel/operation.h"
#include "ipc/channel/spin.h"
#include "ipc/tensor/value_codec.h"
#include "isopool/errors.h"

namespace isopool::client {

/// How long a payload may wait for room in the input arena.
inline constexpr std::chrono::milliseconds kPayloadPatience(5000);

class Migration;

/// This process's channel to one life of one worker: any number of threads send requests and wait
/// for answers. One of the waiting threads leads: it reads the ring for all of them and sleeps on
/// it. When its own answer has come, it passes the lead to another waiting thread. Any thread.
///
/// In a forked child nothing is published: exchange() throws, notify() and the members that release
/// objects do nothing. The memory to which requests are written is not mapped there.
///
/// When the worker dies, every waiting thread is woken within a fraction of a millisecond, after
/// the answers that the worker had finished were delivered. A dead channel stays dead: the
/// worker's replacement has another channel, with another epoch.
///
/// Everything that the worker publishes is untrusted. If it is invalid, the worker is killed, and
/// its requests are settled by that death.
///
/// Only exchange(), death() and processGone() are meant to wait for another process.
class WorkerLink : public std::enable_shared_from_this<WorkerLink>, private BlockLender {
 public:
  /// For the control thread, from the supervisor's introduction. `processId`: the supervisor's
  /// number for the worker, for messages only. `crashLog`: a file that the worker writes; may be
  /// invalid. `livenessWordWorks`: false if the kernel does not mark the liveness word of a dead
  /// worker; then its pidfd is polled. `connection`: see SupervisorConnection::number().
  WorkerLink(std::shared_ptr<WorkerMemory> memory, int processId, base::Fd pidfd, base::Fd crashLog,
             bool livenessWordWorks, uint64_t connection);
  /// Frees what is still lent to the worker, see keepUntilReturned(). Answers share ownership of
  /// the link, results do not.
  ~WorkerLink() override;
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;

  /// Sends the draft's body as `operation` and waits for the answer, the worker's death, the
  /// deadline, another thread's `cancellation`, or until `migration` has found another worker for a
  /// request that has not started. Before that waits for a free slot of the ring, with the same
  /// deadline, and up to 5 seconds for room in the input arena. If the deadline has passed and the
  /// worker runs the call, kills the worker; a shared one is reported to the supervisor.
  ///
  /// Throws ForkedError in a forked child, ArenaFull, DeadlineExceeded if the deadline passes while
  /// it waits for room, SupervisorLost after refuseRequests(), ipc::ValueError: then nothing was
  /// sent, and nothing stays lent. Throws LimitExceeded if the call ran for too long. In every case
  /// a further attempt needs a new draft.
  Answer exchange(ipc::Operation operation, RequestDraft& draft, const Deadline& deadline,
                  CancellationToken* cancellation = nullptr, Migration* migration = nullptr);
  /// Sends a request that has no answer; does not wait for the worker. Only for bodies without
  /// tensors that fit into a slot. False if the body does not fit or the channel has no room now,
  /// is dead or refuses requests, and in a forked child; then nothing was sent. If the worker dies
  /// before it has taken the request, the request is lost without a report.
  bool notify(ipc::Operation operation, RequestDraft& draft);

  /// Makes the worker release an object: handles are sent with the next request, or by themselves
  /// when many have gathered. If there is no memory to note a handle, the worker keeps the object
  /// as long as it lives.
  void releaseHandle(base::HandleId handle) noexcept;
  /// Makes the worker forget a replicated object before any request that is sent later. Does not
  /// wait: if the ring has no room, this happens when it has. Throws std::bad_alloc.
  void forgetObject(uint64_t object);
  /// Call when an Obj was made; releaseObj() releases its handle. When the last Obj is released,
  /// all noted handles are sent at once, if the ring has room: if the program made no further
  /// request, the worker would keep the objects.
  void objMade() noexcept { objs_.fetch_add(1, std::memory_order_relaxed); }
  void releaseObj(base::HandleId handle) noexcept;
  /// A handle that was never used on this channel.
  base::HandleId nextHandle() { return base::HandleId(nextHandle_.fetch_add(1)); }

  /// True when the channel has ended and every request has its outcome.
  bool dead() const { return dead_.load(std::memory_order_acquire); }
  /// True as soon as a thread has seen that nothing more will come: a new request would end at
  /// once, before it has started.
  bool ended() const {
    return ended_.load(std::memory_order_acquire) || deathSeen_.load(std::memory_order_relaxed);
  }
  /// True as soon as the worker is dead, even before its requests are settled.
  bool workerDied() const;
  /// The worker of a dead channel and the cause of its death. Waits up to half a second for the
  /// supervisor if the cause can't be read here; then Death::causeKnown may be false. The crash log
  /// is the last 4 KiB of the worker's file, or this process's reason for killing the worker.
  WorkerLost::Death death();
  /// Kills the worker with SIGKILL; a shared worker is killed by its supervisor. Does not wait: the
  /// requests are settled by the death that follows. `reason` and `overdue`, as in
  /// ipc::ReportDeath, are for the supervisor's log.
  void kill(const std::string& reason, bool overdue = false);

  /// The ways to have a shared worker ended by its supervisor. Called by any thread that uses the
  /// link; must not block and must not use the link.
  struct SharedWorker {
    /// The worker is dead, stopped, or publishes invalid data. The supervisor checks that.
    std::function<void(const std::string& reason)> kill;
    /// A call runs past its deadline. The supervisor kills the worker after the grace period if the
    /// call still runs.
    std::function<void(uint64_t sequence)> overdue;
    uint64_t client = 0;  ///< the supervisor's number for this client
  };
  /// The worker serves other programs, too. Call once, before the pool has the channel.
  void share(SharedWorker worker);
  /// True if the worker serves other programs, too.
  bool shared() const { return sharedWorker_.has_value(); }
  /// While the worker runs a call of another program, 1 plus the number of programs whose calls
  /// wait there; else, and in a private pool, 0.
  uint32_t othersCalls() const;
  /// How long the worker may run clean-up work, which no thread waits for, before it is killed; 0:
  /// without limit. `watch` begins when there is work for it, and when a kill is postponed. Call
  /// once, before the pool has the channel.
  void limitCleanup(std::chrono::nanoseconds limit, std::shared_ptr<UnawaitedWatch> watch) {
    unawaited_.limitCleanup(limit, std::move(watch));
  }
  /// The number of requests of this process that the worker has not ended. All work that no thread
  /// waits for counts as one. Reads the worker's memory only if there is such work.
  uint32_t load() const;
  /// The number of requests that threads wait for.
  uint32_t awaited() const;
  /// True if the worker makes objects for this process before a call needs them. Reads the worker's
  /// memory.
  bool makesObjectsAhead() const { return unawaited_.makesObjects(); }
  /// True if a request has waited too long behind the running one, and none was answered since.
  bool held() const { return held_.load(std::memory_order_relaxed); }
  /// Kills the worker if it has run clean-up work, or kept requests waiting while it ran none, for
  /// longer than limitCleanup() allows, and if a postponed kill is due; a shared one is reported to
  /// the supervisor. Threads that wait for the worker call this about ten times a second.
  void killIfBlocked();
  /// True if a request runs past its deadline, and the worker is not killed yet: the time in which
  /// this process did not run does not count against the worker.
  bool killPostponed();
  /// The same for the control thread, while there is work that no thread waits for. False if there
  /// is none.
  bool lookAtUnawaitedWork();
  /// How long the worker is likely to stay busy, as a degree: the longer its present request has
  /// run, of whichever program, the longer it will probably still run. One degree for each factor
  /// of ten above 10 ms, because smaller differences mean nothing, and one if there is work that no
  /// thread waits for; 0 otherwise. Reads the worker's memory.
  uint32_t occupied() const;
  /// How long the call that it runs now has run, of whichever program; 0 if it runs none.
  std::chrono::nanoseconds runningFor() const;
  /// Its resident anonymous memory; 0 if it is gone. Reads /proc.
  uint64_t residentBytes() const;
  /// True if the worker runs clean-up work: releases, the close of a stream, an unload.
  bool cleansUp();
  /// The supervisor does not let the request of this number run any longer: if its thread still
  /// waits, its exchange() throws LimitExceeded with this text. No effect on other requests.
  void callTimeOver(uint64_t sequence, const std::string& text);
  /// From here on new requests throw SupervisorLost with this text; those in flight continue.
  void refuseRequests(const std::string& text);
  /// While `paused`, exchange() waits before it sends a request, as it waits for room. Requests
  /// that were sent go on, and so does notify().
  void pauseRequests(bool paused);
  /// The supervisor replaces the worker: requests that wait in a pause and may run elsewhere do not
  /// keep it any longer.
  void retire();
  /// Call when the worker, which lives on, has unmapped all memory of this process: ends the
  /// channel and frees what was lent to the worker.
  void detached();
  /// From beginWarmUp() until endWarmUp() the worker makes calls that prepare it, and the pool
  /// gives it no other call. Several pools may warm up one worker at the same time.
  void beginWarmUp() { warmUps_.fetch_add(1, std::memory_order_acq_rel); }
  void endWarmUp() { warmUps_.fetch_sub(1, std::memory_order_acq_rel); }
  bool warmingUp() const { return warmUps_.load(std::memory_order_acquire) != 0; }
  /// True while blocks of this process are lent to the worker.
  bool hasLoans() const { return loans_.outstanding() > 0; }
  /// The same after it has taken note of what the worker has returned; false if the worker is gone.
  bool loansInUse();
  /// Ends the channel and settles all requests, although this process may not have seen the
  /// worker's death: the supervisor has reaped the worker or is gone, or the manager ends. If
  /// another thread leads, that thread settles them, soon after this returns. Blocks stay lent.
  void markDead();
  /// Call before markDead() if the worker's supervisor was lost, for the reason in `text`.
  void loseSupervisor(const std::string& text);
  /// That text; empty if the supervisor was not lost.
  std::string supervisorLoss();
  /// Call when no process of the worker can access memory any more: ends the channel and frees what
  /// was lent to the worker. `signal` and `exitCode` are the cause that death() returns; one of
  /// them is 0.
  void reaped(int signal, int exitCode);
  /// True if the worker's process has ended; waits for that up to `patience`.
  bool processGone(std::chrono::milliseconds patience = std::chrono::milliseconds(0)) const;
  /// True if the worker was killed because its call was cancelled or past its deadline.
  bool endedByCaller() const { return endedByCaller_.load(std::memory_order_relaxed); }
  /// Sets a callback. It is called with an empty reason when a waiting thread first sees the death,
  /// and with what kill() has got before that kills a worker that no other program uses. Call once,
  /// before the pool has the channel. The callback must not block and must not use the link.
  using OnDeath = std::function<void(const std::string& reason, bool overdue)>;
  void onDeath(OnDeath callback) { deathReport_ = std::move(callback); }

  base::Epoch epoch() const { return memory_->end().epoch(); }
  /// A number that no other link of this process has: two supervisors may use the same epochs.
  uint64_t number() const { return number_; }
  /// For messages only: in this PID namespace it may be the number of another process.
  int processId() const { return processId_; }
  WorkerMemory& memory() { return *memory_; }
  /// From now on the worker serves that slot. Call once, before the pool has the channel.
  void assume(uint32_t pool, uint32_t slot);
  /// The pool and slot that the worker serves; nothing while it is a spare.
  struct Place {
    uint32_t pool;
    uint32_t slot;
  };
  std::optional<Place> place();
  /// The slot that the worker serves. Only for threads that got the channel from its pool: these
  /// need no lock.
  uint32_t slot() const { return slot_; }
  /// The worker in messages: "worker 1 (pid 4711)", or "worker (pid 4711)" for a spare.
  std::string name();

  /// Locked by the thread that prepares the worker, as long as the preparation takes, which may be
  /// minutes. A thread that has a deadline waits for the lock only until then. Recursive: the
  /// user's environment makes calls while it is applied.
  std::recursive_timed_mutex& preparation() { return preparation_; }
  /// Objects that this worker has unpickled. Added under preparation().
  DefinedObjects definedObjects;
  std::atomic<bool> configured{false};  ///< the environment was applied. Set under preparation().
  /// How many registered modules were sent to the worker. Changed under preparation().
  std::atomic<size_t> taughtModules{0};

 private:
  friend class Answer;
  friend class Migration;
  friend class CancellationToken;

  static uint64_t nextNumber();
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
  bool reclaim() noexcept override;

  struct Published {
    PendingRequest* request;  ///< null: it was not published, for the reason in `outcome`
    RequestOutcome outcome;
  };
  Published publish(ipc::Operation operation, RequestDraft& draft, const Deadline& deadline,
                    bool workerMaySpin, CancellationToken* cancellation,
                    const Migration* migration);
  bool waitsInPause(const Deadline& deadline, CancellationToken* cancellation,
                    base::MutexLock& lock) ISOPOOL_REQUIRES(publishMutex_);
  void placePayload(std::span<const std::byte> payload, ipc::OutgoingPayload& place, void*& blob,
                    const Deadline& deadline);
  PendingRequest& publishNext(ipc::Operation operation, RequestDraft& draft,
                              const ipc::OutgoingCall& call, void* blob, bool workerMaySpin)
      ISOPOOL_REQUIRES(publishMutex_);
  void tryFlushReleases() noexcept;
  bool flushReleases() noexcept ISOPOOL_REQUIRES(publishMutex_);
  /// These return true if nothing that the worker is to forget waits any longer.
  bool tryFlushForgotten();
  bool flushForgotten() ISOPOOL_REQUIRES(publishMutex_);
  void publishNotification(ipc::OutgoingCall& call) ISOPOOL_REQUIRES(publishMutex_);
  /// How a wait ended. `abandoned`: the thread must not use the request any more.
  struct Waited {
    RequestOutcome outcome;
    bool abandoned;
  };
  Waited wait(PendingRequest& request, const Deadline& deadline, CancellationToken* cancellation,
              Migration* migration, std::optional<ProcessorLoad::Spinner>& spinner);
  void lead(PendingRequest& request, const Deadline& deadline, CancellationToken* cancellation,
            const Migration* migration, std::optional<ProcessorLoad::Spinner>& spinner)
      ISOPOOL_REQUIRES(leadMutex_);
  bool migrates(PendingRequest& request, Migration& migration);
  bool deliverCompletions() ISOPOOL_REQUIRES(leadMutex_);
  void deliverOrPoison() ISOPOOL_REQUIRES(leadMutex_);
  bool deliver(PendingRequest& request) ISOPOOL_REQUIRES(leadMutex_);
  bool noteInputReport(const PendingRequest& request) ISOPOOL_REQUIRES(leadMutex_);
  void discard(PendingRequest& request);
  void deliverUnlessLed();
  void passLead();
  void leave(PendingRequest& request) noexcept;
  void settleAll() ISOPOOL_REQUIRES(leadMutex_);
  bool runTimeIsOver(PendingRequest& request);
  std::optional<RequestOutcome> giveUp(PendingRequest& request, bool takenBack, bool stopped);
  void wakeWaiter(PendingRequest& request);
  std::chrono::nanoseconds runningTime();
  void postponeKill(uint64_t sequence, std::chrono::nanoseconds mayRun, const char* reason);
  bool postponedKillIsDue() ISOPOOL_REQUIRES(publishMutex_);
  void endOverdue(uint64_t sequence, const char* reason);
  void killIfStuck(uint64_t sequence, std::chrono::nanoseconds calledAt);
  bool isAbandonedAndRuns(const PendingRequest& request) const;
  bool hangsInPreparation(std::chrono::nanoseconds now) const ISOPOOL_REQUIRES(publishMutex_);
  void killBecause(const std::string& reason);
  bool timeIsOver(uint64_t sequence) const {
    return timeOver_.load(std::memory_order_acquire) == sequence;
  }
  void release(PendingRequest& request);
  void poison(const std::string& reason);
  void readDeath();
  /// The worker runs a request of another program, or none and the last one was of another.
  bool ranOtherProgram() const;
  bool causeKnown();
  std::vector<c10::Storage> importStorages(const PendingRequest& request,
                                           const ipc::PayloadReader& reader);

  const uint32_t generation_ = forkGeneration();
  const std::shared_ptr<WorkerMemory> memory_;
  const int processId_;
  const base::Fd pidfd_;
  const base::Fd crashLog_;
  const bool livenessWordWorks_;
  const uint64_t number_ = nextNumber();
  const uint64_t connection_;  // the number of the connection that introduced the worker
  std::optional<SharedWorker> sharedWorker_;
  ipc::LeaseTable loans_;
  OnDeath deathReport_;

  base::Mutex publishMutex_;
  base::Condition slotFreed_;
  std::array<std::unique_ptr<PendingRequest>, ipc::kRingSlots> pendingRequests_;
  uint64_t nextSequence_ ISOPOOL_GUARDED_BY(publishMutex_) = 1;   // counts as ClientEnd does
  ipc::SpinBudget workerSpin_ ISOPOOL_GUARDED_BY(publishMutex_);  // of the worker, between calls
  std::string refusal_ ISOPOOL_GUARDED_BY(publishMutex_);
  bool paused_ ISOPOOL_GUARDED_BY(publishMutex_) = false;
  bool retired_ ISOPOOL_GUARDED_BY(publishMutex_) = false;
  /// Objects of which the worker was not told yet.
  std::vector<uint64_t> forgotten_ ISOPOOL_GUARDED_BY(publishMutex_);
  UnheardCalls unheard_ ISOPOOL_GUARDED_BY(publishMutex_);
  base::RunningTime time_ ISOPOOL_GUARDED_BY(publishMutex_);  // looked at while threads wait
  struct PostponedKill {
    uint64_t sequence;                   // of a request that runs past its deadline
    std::chrono::nanoseconds runsUntil;  // of time_: then the worker is killed
    const char* reason;
  };
  std::optional<PostponedKill> postponedKill_ ISOPOOL_GUARDED_BY(publishMutex_);
  base::Mutex releasesMutex_;
  std::vector<uint64_t> releases_ ISOPOOL_GUARDED_BY(releasesMutex_);
  std::atomic<uint32_t> releasesWaiting_{0};
  std::atomic<uint32_t> objs_{0};  // Objs that are alive

  base::Mutex leadMutex_;
  ipc::SpinBudget spin_ ISOPOOL_GUARDED_BY(leadMutex_);
  std::atomic<int64_t> answered_{0};  // when a thread last had an answer, by ipc::monotonicNow()
  ipc::ReceivedCompletion received_ ISOPOOL_GUARDED_BY(leadMutex_);
  KeptInputs keptInputs_ ISOPOOL_GUARDED_BY(leadMutex_);
  std::atomic<uint32_t> pending_{0};
  std::atomic<int32_t> abandoned_{0};  // of pending_, those that their threads have left
  std::atomic<int> callsUnderWay_{0};  // from before publishing until their threads continue
  std::atomic<bool> poisoned_{false};
  std::atomic<uint64_t> timeOver_{0};  // the last request that reached the limit of its run time
  std::string timeOverText_ ISOPOOL_GUARDED_BY(deathMutex_);
  std::string supervisorLoss_ ISOPOOL_GUARDED_BY(deathMutex_);

  std::atomic<bool> ended_{false};  // nothing more will come: the leader is to settle all requests
  std::atomic<bool> endedByCaller_{false};
  mutable std::atomic<bool> deathSeen_{false};  // by this process, perhaps before the supervisor
  std::atomic<bool> dead_{false};               // all requests are settled
  // The pool reads the next four for each call: kept apart from words that each call changes.
  std::atomic<bool> held_{false};
  std::atomic<uint32_t> warmUps_{0};
  UnawaitedWork unawaited_;  // in part guarded by publishMutex_
  std::atomic<uint64_t> nextHandle_{1};
  base::Mutex deathMutex_;
  base::Condition causeTold_;
  WorkerLost::Death death_ ISOPOOL_GUARDED_BY(deathMutex_);
  bool deathRead_ ISOPOOL_GUARDED_BY(deathMutex_) = false;
  std::string name_ ISOPOOL_GUARDED_BY(deathMutex_);
  std::optional<Place> place_ ISOPOOL_GUARDED_BY(deathMutex_);
  uint32_t slot_ = 0;  // set before the pool has the channel

  std::recursive_timed_mutex preparation_;
};

}  // namespace isopool::client
