// SPDX-License-Identifier: BSD-3-Clause
// How threads wait for answers: the leading thread, deadlines, the end of a dead worker's requests,
// and workers that do not respond.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/without_cancellation.h"
#include "client/transport/input_arena.h"
#include "client/transport/migration.h"
#include "client/transport/pending_request.h"
#include "client/transport/unread_messages.h"
#include "client/transport/worker_link.h"
#include "ipc/channel/await_outcome.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/crash_point.h"

namespace isopool::client {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// The longest sleep without a new check: covers a peer that was stopped between store and wake.
constexpr milliseconds kLongestSleep(100);
// How long a worker may continue a preparation whose caller has left, while others wait.
constexpr std::chrono::minutes kLongestPreparation(5);

// How soon a limit of the run time begins after the run.
constexpr milliseconds kBetweenLooksForStart(2);

// How long a thread may sleep until it has to check its deadlines or its migration.
nanoseconds untilItLooks(PendingRequest& request, const Deadline& deadline,
                         const Migration* migration) {
  if (!deadline && migration == nullptr && !request.runTime) return kLongestSleep;
  const auto now = Clock::now();
  request.time.look(now);
  nanoseconds time = kLongestSleep;
  if (request.runEnds) time = std::min(time, request.time.untilLook(*request.runEnds));
  if (request.runTime && !request.runEnds) time = kBetweenLooksForStart;
  if (deadline) time = std::min<nanoseconds>(time, *deadline - now);
  if (migration != nullptr) time = std::min<nanoseconds>(time, migration->nextLook() - now);
  return std::max(time, nanoseconds(0));
}

}  // namespace

WorkerLink::Waited WorkerLink::wait(PendingRequest& request, const Deadline& deadline,
                                    CancellationToken* cancellation, Migration* migration,
                                    std::optional<ProcessorLoad::Spinner>& spinner) {
  // If CallOptions::interrupted throws, or ends the thread, the call ends as if it had returned
  // true.
  struct Leaving {
    WorkerLink& link;
    PendingRequest& request;
    CancellationToken* cancellation;
    Migration* migration;
    bool waits = true;
    ~Leaving() {
      if (!waits) return;
      link.leave(request);
      if (cancellation != nullptr) cancellation->leave(RequestOutcome::kOverdue);
      if (migration != nullptr) migration->requestEnded();
    }
  } leaving{*this, request, cancellation, migration};
  const auto ended = [&](RequestOutcome outcome, bool abandoned) {
    leaving.waits = false;
    return Waited{outcome, abandoned};
  };
  // Most answers come during the first wait: migrates(), which reads the clock, follows only then.
  for (bool waited = false;; waited = true) {
    const uint32_t signal = request.signal.load(std::memory_order_acquire);
    const RequestOutcome outcome = request.outcome.load(std::memory_order_acquire);
    if (outcome != RequestOutcome::kPending) return ended(outcome, /*abandoned=*/false);
    if (migration != nullptr && cancellation != nullptr && cancellation->looks()) {
      migration->pause();
    }
    const bool stopped = cancellation != nullptr && cancellation->stops();
    const bool past =
        stopped || isPast(deadline) || runTimeIsOver(request) || timeIsOver(request.sequence);
    const bool takenBack =
        (cancellation != nullptr && cancellation->requested()) ||
        (waited && migration != nullptr && !past && migrates(request, *migration));
    if (takenBack || past) {
      if (const auto given = giveUp(request, takenBack, stopped)) {
        return ended(*given, /*abandoned=*/true);
      }
      continue;
    }
    if (leadMutex_.try_lock()) {
      {
        const base::MutexLock leading(leadMutex_, std::adopt_lock);
        lead(request, deadline, cancellation, migration, spinner);
      }
      passLead();
      continue;
    }
    spinner.reset();
    request.sleep(signal, untilItLooks(request, deadline, migration));
  }
}

// For the thread of a request that waits for it no longer and does not take its answer.
void WorkerLink::leave(PendingRequest& request) noexcept {
  const base::WithoutCancellation complete;
  try {
    if (giveUp(request, /*takenBack=*/false, /*stopped=*/true)) return;
  } catch (const std::bad_alloc&) {
    // The request was abandoned first; its worker is not killed.
    return;
  }
  // The answer is being delivered.
  uint32_t signal = 0;
  while (signal = request.signal.load(std::memory_order_acquire),
         request.outcome.load(std::memory_order_acquire) == RequestOutcome::kPending) {
    request.sleep(signal, kLongestSleep);
  }
  if (request.outcome.load() == RequestOutcome::kAnswered && !request.answerUnknown) {
    discard(request);
  }
  release(request);
}

void WorkerLink::lead(PendingRequest& request, const Deadline& deadline,
                      CancellationToken* cancellation, const Migration* migration,
                      std::optional<ProcessorLoad::Spinner>& spinner) {
  ipc::ClientEnd& end = memory_->end();
  const int64_t began = ipc::monotonicNow();
  const bool maySpin = spinner && spinner->granted() && !end.workerSleepsHere();
  const int64_t wakeUp = end.workerSleeps() ? ipc::kWakeUp : 0;
  const auto spun = ipc::spinUntil([&] { return end.completionReady(); }, began,
                                   maySpin ? spin_.nanoseconds(wakeUp) : 0);
  struct Leader {
    WorkerLink& channel;
    ipc::ClientEnd& end;
    PendingRequest& request;
    const Deadline& deadline;
    CancellationToken* cancellation;
    const Migration* migration;
    std::optional<ProcessorLoad::Spinner>& spinner;
    std::array<ipc::FutexWatch, 2> watches{};
    bool slept = false;

    // The leader holds the lead as long as it waits.
    void deliver() {
      channel.leadMutex_.assertHeld();
      channel.deliverOrPoison();
    }
    bool hasOutcome() const {
      return request.outcome.load(std::memory_order_acquire) != RequestOutcome::kPending;
    }
    bool workerDied() const { return channel.workerDied(); }
    void settle() {
      channel.leadMutex_.assertHeld();
      channel.settleAll();
    }
    bool leaves() {
      return isPast(deadline) || channel.runTimeIsOver(request) ||
             (cancellation != nullptr && (cancellation->requested() || cancellation->looks())) ||
             (migration != nullptr && migration->due()) || channel.timeIsOver(request.sequence);
    }
    void watch() {
      spinner.reset();
      watches = {end.completionWatch(), ipc::watchLivenessWord(end.peer())};
    }
    void sleep() {
      slept = true;
      ipc::futexWait(watches, untilItLooks(request, deadline, migration));
      if (!completionReady()) channel.killIfBlocked();
    }
    bool completionReady() const { return end.completionReady(); }
    void announceSleep() { end.announceSleep(); }
    void withdrawSleep() { end.withdrawSleep(); }
  } leader{*this, end, request, deadline, cancellation, migration, spinner};
  if (!ipc::awaitOutcome(leader)) return;
  const int64_t ended = spun && !leader.slept ? began + *spun : ipc::monotonicNow();
  answered_.store(ended, std::memory_order_relaxed);
}

// For the thread that waits for the request.
bool WorkerLink::runTimeIsOver(PendingRequest& request) {
  if (!request.runTime) return false;
  if (!request.runEnds) {
    if (!memory_->end().hasStarted(request.sequence)) return false;
    const nanoseconds now = request.time.look(Clock::now());
    if (*request.runTime > nanoseconds::max() - now) {
      request.runTime.reset();
      return false;
    }
    request.runEnds = now + *request.runTime;
  }
  return request.time.look(Clock::now()) >= *request.runEnds;
}

// False if the ring's content is invalid.
bool WorkerLink::deliverCompletions() {
  ipc::ClientEnd& end = memory_->end();
  while (!poisoned_.load(std::memory_order_relaxed)) {
    const ipc::Received received = end.peek(received_);
    if (received == ipc::Received::kNothing) return true;
    if (received == ipc::Received::kPoisoned) return false;
    PendingRequest& request = *pendingRequests_[received_.sequence % ipc::kRingSlots];
    const bool known = request.sequence == received_.sequence &&
                       request.use.load(std::memory_order_acquire) != PendingRequest::Use::kFree &&
                       request.outcome.load(std::memory_order_relaxed) == RequestOutcome::kPending;
    if (!known) return false;
    if (received_.status == static_cast<uint32_t>(ipc::CompletionStatus::kWithdrawn) &&
        !end.recalled(received_.sequence)) {
      return false;
    }
    spin_.worked(received_.workNanoseconds);
    const bool delivered = deliver(request);
    ipc::reachCrashPoint(ipc::CrashPoint::kCompletionDelivered);
    if (!delivered) return false;
  }
  return true;
}

// After markDead() the requests are settled: an answer that comes then is no
// fault of the worker.
void WorkerLink::deliverOrPoison() {
  if (deliverCompletions() || ended_.load(std::memory_order_acquire)) return;
  poison("its completion ring is inconsistent");
}

bool WorkerLink::deliver(PendingRequest& request) {
  auto waiting = PendingRequest::Use::kWaiting;
  const bool wanted = request.use.compare_exchange_strong(waiting, PendingRequest::Use::kDelivering,
                                                          std::memory_order_acq_rel);
  ipc::ReceivedCompletion& completion = request.completion;
  completion.sequence = received_.sequence;
  completion.status = received_.status & ~ipc::kInputReportFlag;
  completion.payload = received_.payload;
  std::memcpy(completion.bytes, received_.bytes, received_.payload.inlineBytes);
  bool whole = true;
  if (completion.payload.blobBytes != 0) {
    const auto blob = memory_->find(base::SegmentId(completion.payload.blobSegment),
                                    completion.payload.blobOffset, completion.payload.blobBytes);
    // Then nothing is known of the answer: what the worker lent with it stays lent.
    request.answerUnknown = !blob && UnreadMessages::of(connection_);
    whole = blob || request.answerUnknown;
    try {
      if (blob) request.answerBlob.assign(blob->bytes.begin(), blob->bytes.end());
    } catch (const std::bad_alloc&) {
      // Only this thread can end a request that is being delivered: its caller gets an incomplete
      // answer, and the worker is killed.
      whole = false;
    }
  }
  if (request.answerUnknown) {
    noteWrites(request.versions);
  } else if ((received_.status & ipc::kInputReportFlag) != 0 && whole) {
    whole = noteInputReport(request);
  }
  const bool withdrawn =
      completion.status == static_cast<uint32_t>(ipc::CompletionStatus::kWithdrawn);
  if (withdrawn) cancelExports(request.exports);
  // Before the request can be free and used for a further call: with the answer to that one the
  // ring would hold more than it has slots.
  memory_->end().consumed();
  // Before the request's thread continues, and looks for an idle worker.
  pending_.fetch_sub(1, std::memory_order_relaxed);
  if (held()) held_.store(false, std::memory_order_relaxed);
  unawaited_.answered(received_.sequence);
  // The outcome comes last: then the request belongs to its thread, which may free it at once.
  if (wanted) request.use.store(PendingRequest::Use::kDelivered, std::memory_order_relaxed);
  request.outcome.store(withdrawn ? RequestOutcome::kWithdrawn : RequestOutcome::kAnswered,
                        std::memory_order_release);
  if (wanted) {
    request.wake();
  } else {
    abandoned_.fetch_sub(1, std::memory_order_relaxed);
    if (whole && !withdrawn && !request.answerUnknown) discard(request);
    release(request);
  }
  return whole;
}

// False if the report is invalid.
bool WorkerLink::noteInputReport(const PendingRequest& request) {
  try {
    const ipc::InputReport report = ipc::PayloadReader(request.answerBytes()).inputReport();
    if (report.empty()) {
      keptInputs_.noteUnknown(request.sequence, request.versions);
    } else {
      keptInputs_.note(report, request.sequence, request.versions);
    }
    return true;
  } catch (const std::exception&) {
    noteWrites(request.versions);
    return false;
  }
}

// Returns what the worker lent with an answer that no thread takes.
void WorkerLink::discard(PendingRequest& request) {
  try {
    const ipc::PayloadReader reader(request.answerBytes());
    for (const ipc::StorageRecord& record : reader.storages()) {
      if (record.kind == ipc::StorageKind::kLent) {
        ipc::returnLease(memory_->end().returns(), {record.lease, record.generation});
      }
    }
  } catch (const std::exception&) {
    poison("an answer that can't be decoded");
  }
}

// Delivers answers if no thread leads; then one of the waiting threads takes the lead.
void WorkerLink::deliverUnlessLed() {
  if (!leadMutex_.try_lock()) return;
  base::MutexLock lead(leadMutex_, std::adopt_lock);
  // If no thread waits, no leader finds that the ring is inconsistent.
  deliverOrPoison();
  lead.unlock();
  passLead();
}

// Call when the lead is free: wakes one of the waiting threads, which takes it.
void WorkerLink::passLead() {
  if (pending_.load(std::memory_order_relaxed) == 0) return;
  for (const auto& request : pendingRequests_) {
    if (request->use.load(std::memory_order_acquire) == PendingRequest::Use::kWaiting &&
        request->outcome.load(std::memory_order_acquire) == RequestOutcome::kPending) {
      request->wake();
      return;
    }
  }
}

void WorkerLink::settleAll() {
  const base::WithoutCancellation complete;
  try {
    readDeath();
  } catch (const std::bad_alloc&) {
    // The death is reported without its crash log; the requests get their outcomes nevertheless.
  }
  ipc::ClientEnd& end = memory_->end();
  bool first = false;
  // Of abandoned requests; destroyed without the lock, because a storage of Python waits for the
  // interpreter's.
  std::vector<std::vector<ExportedStorage>> exports;
  {
    base::MutexLock lock(publishMutex_);
    first = !dead_.exchange(true, std::memory_order_acq_rel);
    bool lost = false;
    ended_.store(true, std::memory_order_release);
    for (const auto& entry : pendingRequests_) {
      PendingRequest& request = *entry;
      const auto use = request.use.load(std::memory_order_acquire);
      if (use == PendingRequest::Use::kFree || request.outcome.load() != RequestOutcome::kPending)
        continue;
      // Taken back, because the worker may still live: it may outlive its supervisor for a moment.
      const RequestOutcome outcome = outcomeAtDeath(!end.recall(request.sequence));
      if (outcome == RequestOutcome::kLost) {
        noteWrites(request.versions);
        // Before a caller of a lost request continues.
        if (!std::exchange(lost, true)) keptInputs_.noteDeath();
      }
      auto waiting = PendingRequest::Use::kWaiting;
      const bool wanted =
          request.use.compare_exchange_strong(waiting, PendingRequest::Use::kDelivering);
      if (wanted) request.use.store(PendingRequest::Use::kDelivered, std::memory_order_relaxed);
      request.outcome.store(outcome, std::memory_order_release);
      pending_.fetch_sub(1, std::memory_order_relaxed);
      if (wanted) {
        request.wake();
      } else {
        abandoned_.fetch_sub(1, std::memory_order_relaxed);
        try {
          exports.push_back(std::move(request.exports));
        } catch (const std::bad_alloc&) {
          // They end with the request.
        }
        release(request);
      }
    }
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kCallsSettled);
  // Reports only a death: a channel may also end because this process leaves a living worker.
  try {
    const bool report = first && deathReport_ && deathSeen_.load(std::memory_order_relaxed);
    if (report) deathReport_("", /*overdue=*/false);
  } catch (const std::bad_alloc&) {
    // The supervisor sees the death itself, a little later.
  }
}

// Call when the deadline has passed, or the request was taken back or stopped. Returns nothing if
// the answer came at the same moment.
std::optional<RequestOutcome> WorkerLink::giveUp(PendingRequest& request, bool takenBack,
                                                 bool stopped) {
  const uint64_t sequence = request.sequence;
  const nanoseconds publishedAt = request.publishedAt;
  // Only the deadline is a time of the clock: a stop by the caller takes effect at once, and a
  // limit of the run time counts as this does.
  const bool byDeadline = !stopped && !runTimeIsOver(request);
  // The first look is later than the publishing: without a stop, the difference is only that.
  const nanoseconds counted = request.time.look(Clock::now());
  const bool wasStopped = request.time.lost().count() > 0;
  const nanoseconds mayRun = byDeadline && wasStopped ? request.mayRun - counted : nanoseconds(0);
  const bool continues = request.continuesPastDeadline;
  if (continues) request.leftAt = runningTime();
  // The answer may already be in the ring.
  deliverUnlessLed();
  ipc::VersionCounters versions;
  try {
    versions = request.versions;
  } catch (const std::bad_alloc&) {
    noteWrites(request.versions);  // while they are there: the outcome is not known yet
  }
  auto waiting = PendingRequest::Use::kWaiting;
  // A completion that is being delivered now wins. After the compare-exchange another thread may
  // free the request at any time.
  if (!request.use.compare_exchange_strong(waiting, PendingRequest::Use::kAbandoned,
                                           std::memory_order_acq_rel)) {
    return std::nullopt;
  }
  abandoned_.fetch_add(1, std::memory_order_relaxed);
  unawaited_.add(sequence);
  ipc::reachCrashPoint(ipc::CrashPoint::kCallAbandoned);
  const bool timeOver = timeIsOver(sequence);
  const RequestOutcome outcome = takenBack  ? RequestOutcome::kWithdrawn
                                 : timeOver ? RequestOutcome::kOverdue
                                            : outcomeAtDeadline(memory_->end().recall(sequence));
  // The worker may have written to the inputs, and may still do so: then its answer or its death
  // counts once more.
  if (outcome == RequestOutcome::kOverdue) noteWrites(versions);
  // Another thread may have woken this one to lead.
  deliverUnlessLed();
  // The request was answered meanwhile: the worker has ended it.
  if (request.use.load(std::memory_order_acquire) != PendingRequest::Use::kAbandoned)
    return outcome;
  // No kill: the next call can use what a preparation makes, and a request whose run time is over
  // was reported by the supervisor itself.
  if (takenBack || timeOver || (outcome == RequestOutcome::kOverdue && continues)) return outcome;
  if (outcome == RequestOutcome::kWithdrawn) {
    killIfStuck(sequence, publishedAt);
  } else {
    const char* const reason = stopped ? "a call was stopped" : "a call was past its deadline";
    if (mayRun.count() > 0) {
      postponeKill(sequence, mayRun, reason);
    } else {
      endOverdue(sequence, reason);
    }
  }
  return outcome;
}

// The worker may run the request for as long as this process did not run. The control thread looks.
void WorkerLink::postponeKill(uint64_t sequence, nanoseconds mayRun, const char* reason) {
  {
    base::MutexLock lock(publishMutex_);
    postponedKill_ = {sequence, time_.look(Clock::now()) + mayRun, reason};
  }
  unawaited_.watch();
}

void WorkerLink::endOverdue(uint64_t sequence, const char* reason) {
  if (sharedWorker_) {
    sharedWorker_->overdue(sequence);
  } else {
    kill(reason, /*overdue=*/true);
  }
}

bool WorkerLink::killPostponed() {
  base::MutexLock lock(publishMutex_);
  return postponedKill_.has_value();
}

// True if the request of the postponed kill still runs when its time is over.
bool WorkerLink::postponedKillIsDue() {
  if (!postponedKill_) return false;
  const PendingRequest& request = *pendingRequests_[postponedKill_->sequence % ipc::kRingSlots];
  if (request.sequence == postponedKill_->sequence && isAbandonedAndRuns(request)) {
    return time_.counted() >= postponedKill_->runsUntil;
  }
  postponedKill_.reset();
  return false;
}

nanoseconds WorkerLink::runningTime() {
  base::MutexLock lock(publishMutex_);
  return time_.look(Clock::now());
}

// Looks for another worker if the request has waited for long. True if it was taken back, to be
// sent to the worker where a place is reserved for it.
bool WorkerLink::migrates(PendingRequest& request, Migration& migration) {
  if (!migration.due()) return false;
  ipc::ClientEnd& end = memory_->end();
  if (end.hasStarted(request.sequence)) {
    migration.stay();
    return false;
  }
  held_.store(true, std::memory_order_relaxed);
  if (!migration.findPlace(*this, request)) return false;
  if (end.recall(request.sequence)) {
    migration.leave();
    return true;
  }
  migration.stay();
  return false;
}

// The waiting thread may lead, and so sleep on the ring: wakes both words. A wake-up that comes
// between that thread's look and its sleep has effect within kLongestSleep.
void WorkerLink::wakeWaiter(PendingRequest& request) {
  request.wake();
  ipc::futexWake(memory_->end().peer().completionTail);
}

// Call when a deadline has passed before this request, or one behind it, started. A worker that is
// stopped or hangs in a preparation would let the deadline of every caller pass.
void WorkerLink::killIfStuck(uint64_t sequence, nanoseconds calledAt) {
  const ipc::WorkerControl& peer = memory_->end().peer();
  bool stopped = false;
  bool hangs = false;
  {
    base::MutexLock lock(publishMutex_);
    const nanoseconds now = time_.look(Clock::now());
    const bool sleeps = peer.sleeping.load(std::memory_order_seq_cst) != 0;
    const uint32_t taken = peer.submissionHead.load(std::memory_order_acquire);
    stopped = unheard_.tooMany(sequence, calledAt, {sleeps, taken}, now);
    hangs = hangsInPreparation(now);
  }
  if (stopped) {
    killBecause("it slept for a second while calls waited");
  } else if (hangs) {
    killBecause("it had not loaded an object " + std::to_string(kLongestPreparation.count()) +
                " minutes after the deadline of the call that needed the object");
  }
}

bool WorkerLink::hangsInPreparation(nanoseconds now) const {
  return std::any_of(pendingRequests_.begin(), pendingRequests_.end(), [&](const auto& request) {
    return isAbandonedAndRuns(*request) && request->continuesPastDeadline &&
           now - request->leftAt >= kLongestPreparation;
  });
}

bool WorkerLink::isAbandonedAndRuns(const PendingRequest& request) const {
  return request.use.load(std::memory_order_acquire) == PendingRequest::Use::kAbandoned &&
         request.sequence == memory_->end().peer().startedSequence.load(std::memory_order_relaxed);
}

bool WorkerLink::lookAtUnawaitedWork() {
  if (dead()) return false;
  const bool forgets = !tryFlushForgotten();
  if (!unawaited_.any()) return forgets;
  killIfBlocked();
  return true;
}

// Work that no thread waits for must not keep the worker from the calls of other threads.
void WorkerLink::killIfBlocked() {
  std::optional<UnawaitedWork::Blocked> blocked;
  std::optional<PostponedKill> due;
  uint64_t taken = 0;
  {
    base::MutexLock lock(publishMutex_);
    const uint64_t published = nextSequence_ - 1;
    const nanoseconds now = time_.look(Clock::now());
    if (postponedKillIsDue()) due = std::exchange(postponedKill_, std::nullopt);
    blocked = unawaited_.overLimit(published, now);
    taken = unawaited_.taken(published);
  }
  if (due) return endOverdue(due->sequence, due->reason);
  if (!blocked) return;
  using Blocked = UnawaitedWork::Blocked;
  const auto limit = std::chrono::duration_cast<milliseconds>(unawaited_.limitOf(*blocked)).count();
  const std::string time = std::to_string(limit) + " ms";
  std::string reason;
  switch (*blocked) {
    case Blocked::kByCleanup:
      reason = "it ran clean-up code for " + time +
               ": the release of an Obj, the close of a stream, an unload";
      break;
    case Blocked::kByPreparation:
      reason = "it took more than " + time + " to load an object before any call needed it";
      break;
    case Blocked::kByNothing:
      reason = "requests waited for " + time + " while it ran none and took none";
      break;
  }
  reason += " (ISOPOOL_CLEANUP_TIMEOUT)";
  if (!sharedWorker_) {
    killBecause(reason);
  } else if (*blocked == Blocked::kByNothing) {
    kill(reason);
  } else {
    sharedWorker_->overdue(taken);  // the supervisor itself checks that the request still runs
  }
}

void WorkerLink::release(PendingRequest& request) {
  request.exports.clear();
  request.versions.clear();
  request.answerBlob.clear();
  request.answerUnknown = false;
  if (request.answerBlob.capacity() > (size_t{1} << 20)) request.answerBlob.shrink_to_fit();
  if (request.requestBlob != nullptr) {
    InputArena::instance().dropReference(std::exchange(request.requestBlob, nullptr));
  }
  request.use.store(PendingRequest::Use::kFree, std::memory_order_release);
  slotFreed_.notify_one();
}

}  // namespace isopool::client
