// SPDX-License-Identifier: BSD-3-Clause
#include "client/worker_link.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/await_readable.h"
#include "base/pidfd.h"
#include "client/input_arena.h"
#include "client/migration.h"
#include "client/pending_request.h"
#include "ipc/channel/await_outcome.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/channel/preparation.h"
#include "ipc/crash_point.h"

namespace isopool::client {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// The longest sleep without looking around: covers a peer that was stopped between store and wake.
constexpr milliseconds kLongestSleep(100);
// So long a worker may go on with a preparation whose caller has left, while others wait.
constexpr std::chrono::minutes kLongestPreparation(5);
// How long the supervisor may take to tell how a worker died. It reaps within milliseconds.
constexpr milliseconds kPatienceForCause(500);
constexpr size_t kReleaseBatch = 128;
constexpr uint32_t kSpinAllowanceMicroseconds = ipc::kLongestSpin / 1000;

// A request that took so long keeps its worker occupied: a new session goes elsewhere.
constexpr int64_t kLongRequest = 10'000'000;  // ns
constexpr uint32_t kDegrees = 5;  // of being occupied, one for each factor of ten above that

// How long a thread may sleep that has these reasons to go.
nanoseconds untilItLooks(const Deadline& deadline, const Migration* migration) {
  if (!deadline && migration == nullptr) return kLongestSleep;
  const auto now = Clock::now();
  nanoseconds time = kLongestSleep;
  if (deadline) time = std::min<nanoseconds>(time, *deadline - now);
  if (migration != nullptr) time = std::min<nanoseconds>(time, migration->nextLook() - now);
  return std::max(time, nanoseconds(0));
}

}  // namespace

// ---- Life ------------------------------------------------------------------------------------

WorkerLink::WorkerLink(std::shared_ptr<WorkerMemory> memory, int processId, base::Fd pidfd,
                       base::Fd crashLog, bool livenessWordWorks, uint64_t connection)
    : memory_(std::move(memory)),
      processId_(processId),
      pidfd_(std::move(pidfd)),
      crashLog_(std::move(crashLog)),
      livenessWordWorks_(livenessWordWorks),
      connection_(connection),
      loans_(memory_->end().peer().inputReturns),
      unawaited_(*memory_),
      name_("worker (pid " + std::to_string(processId) + ")") {
  for (auto& request : pendingRequests_) request = std::make_unique<PendingRequest>();
  InputArena::instance().addLoans(loans_);
}

WorkerLink::~WorkerLink() {
  InputArena::instance().removeLoans(loans_);
  loans_.collectAll([](const void* block) { InputArena::instance().dropReference(block); });
}

void WorkerLink::assume(uint32_t pool, uint32_t slot) {
  std::lock_guard lock(deathMutex_);
  place_ = Place{pool, slot};
  slot_ = slot;
  name_ = "worker " + std::to_string(slot) + " (pid " + std::to_string(processId_) + ")";
}

std::optional<WorkerLink::Place> WorkerLink::place() {
  std::lock_guard lock(deathMutex_);
  return place_;
}

std::string WorkerLink::name() {
  std::lock_guard lock(deathMutex_);
  return name_;
}

bool WorkerLink::processGone(milliseconds patience) const {
  return base::awaitReadable(pidfd_.get(), patience);
}

// What was seen once holds: a hostile worker may write the liveness word, and write it again.
bool WorkerLink::workerDied() const {
  if (ended_.load(std::memory_order_acquire) || deathSeen_.load(std::memory_order_relaxed)) {
    return true;
  }
  const bool died =
      ipc::livenessWordOwnerDied(memory_->end().peer()) || (!livenessWordWorks_ && processGone());
  if (died) deathSeen_.store(true, std::memory_order_relaxed);
  return died;
}

void WorkerLink::kill(const std::string& reason) {
  if (sharedWorker_) return sharedWorker_->kill(reason);
  // First: the supervisor shall know why when it sees the worker end.
  try {
    if (deathReport_) deathReport_(reason);
  } catch (const std::bad_alloc&) {
    // It then takes it for a kill from outside.
  }
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

void WorkerLink::share(SharedWorker worker) {
  sharedWorker_ = std::move(worker);
  unawaited_.share(sharedWorker_->client);
}

uint32_t WorkerLink::othersCalls() const {
  if (!sharedWorker_) return 0;
  const ipc::WorkerStatusPage* statusPage = memory_->statusPage();
  if (statusPage == nullptr) return 0;
  const uint64_t running = statusPage->runningClient.load(std::memory_order_relaxed);
  // Our own calls the pool counts; the one that has just answered may still stand there.
  if (running == 0 || running == sharedWorker_->client) return 0;
  return 1 + statusPage->waitingClients.load(std::memory_order_relaxed);
}

uint32_t WorkerLink::awaited() const {
  const auto awaited = static_cast<int32_t>(pending_.load(std::memory_order_relaxed)) -
                       abandoned_.load(std::memory_order_relaxed);
  return static_cast<uint32_t>(std::max(awaited, 0));
}

uint32_t WorkerLink::load() const { return awaited() + (unawaited_.any() ? 1 : 0); }

uint32_t WorkerLink::occupied() const {
  const bool left = unawaited_.any();
  const ipc::WorkerStatusPage* statusPage = memory_->statusPage();
  const uint64_t running =
      statusPage == nullptr ? 0 : statusPage->runningClient.load(std::memory_order_relaxed);
  if (running == 0) return left ? 1 : 0;
  // A worker that loses its processor between its answer and this word has nothing of ours to do.
  const bool ours = !sharedWorker_ || running == sharedWorker_->client;
  if (ours && !left && awaited() == 0) return 0;
  const int64_t time =
      ipc::monotonicNow() - statusPage->runningSince.load(std::memory_order_relaxed);
  uint32_t degree = left ? 1 : 0;
  for (int64_t bound = kLongRequest; time > bound && degree < kDegrees; bound *= 10) ++degree;
  return degree;
}

bool WorkerLink::cleansUp() {
  std::lock_guard lock(publishMutex_);
  return unawaited_.cleansUp(nextSequence_ - 1);
}

void WorkerLink::callTimeOver(uint64_t sequence, const std::string& text) {
  {
    std::lock_guard lock(deathMutex_);
    timeOverText_ = text;
  }
  timeOver_.store(sequence, std::memory_order_release);
  wakeWaiter(*pendingRequests_[sequence % ipc::kRingSlots]);
}

void WorkerLink::refuseRequests(const std::string& text) {
  std::lock_guard lock(publishMutex_);
  refusal_ = text;
}

void WorkerLink::detached() {
  memory_->expectNoMoreSegments();
  markDead();
  loans_.collectAll([](const void* block) { InputArena::instance().dropReference(block); });
}

void WorkerLink::poison(const std::string& reason) {
  if (poisoned_.exchange(true)) return;
  killBecause("it published invalid data: " + reason);
}

// Its death then says why.
void WorkerLink::killBecause(const std::string& reason) {
  {
    std::lock_guard lock(deathMutex_);
    death_.crashLog =
        (sharedWorker_ ? "reported by this program, because " : "killed by its client, because ") +
        reason;
  }
  kill(reason);
}

void WorkerLink::markDead() {
  ended_.store(true, std::memory_order_release);
  if (leadMutex_.try_lock()) {
    if (!dead()) {
      deliverCompletions();
      settleAll();
    }
    leadMutex_.unlock();
  } else {
    // The leader settles; it may sleep on this word.
    ipc::futexWake(memory_->end().peer().completionTail);
  }
}

void WorkerLink::reaped(int signal, int exitCode) {
  {
    std::lock_guard lock(deathMutex_);
    death_.signal = signal;
    death_.exitCode = exitCode;
    death_.causeKnown = true;
  }
  causeTold_.notify_all();
  memory_->expectNoMoreSegments();
  markDead();
  loans_.collectAll([](const void* block) { InputArena::instance().dropReference(block); });
}

bool WorkerLink::causeKnown() {
  std::lock_guard lock(deathMutex_);
  return death_.causeKnown;
}

WorkerLost::Death WorkerLink::death() {
  readDeath();
  std::unique_lock lock(deathMutex_);
  // An exit code of 0, or one that was reaped before it was read: the supervisor is about to tell.
  causeTold_.wait_for(lock, kPatienceForCause, [this] { return death_.causeKnown; });
  return death_;
}

// The kernel knows the exit code before it tears the address space down, long before anybody may
// reap the process: the last field of its stat line (proc(5)) is there at once.
void WorkerLink::readDeath() {
  std::lock_guard lock(deathMutex_);
  if (deathRead_) return;
  deathRead_ = true;
  death_.worker = name_;
  death_.processId = processId_;
  // Not processId_: the supervisor's number may be another process's here, in a PID namespace.
  const pid_t number = base::processOf(pidfd_).value_or(0);
  if (!death_.causeKnown && number != 0) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/stat", number);
    if (FILE* file = std::fopen(path, "re")) {
      char line[2048];
      const size_t length = std::fread(line, 1, sizeof line - 1, file);
      std::fclose(file);
      line[length] = '\0';
      // The number is this process's only while it is not reaped.
      const bool same = base::processOf(pidfd_) == number;
      const char* lastField = std::strrchr(line, ' ');
      if (same && lastField != nullptr) {
        const int code = std::atoi(lastField + 1);
        death_.signal = code & 0x7f;
        death_.exitCode = (code >> 8) & 0xff;
        // Zero is also what a process has that is still alive.
        death_.causeKnown = code != 0;
      }
    }
  }
  if (death_.crashLog.empty() && crashLog_.valid()) {
    constexpr off_t kLongest = 4096;
    const off_t end = ::lseek(crashLog_.get(), 0, SEEK_END);
    const off_t begin = std::max<off_t>(0, end - kLongest);
    std::string text(static_cast<size_t>(std::max<off_t>(0, end - begin)), '\0');
    const ssize_t got = ::pread(crashLog_.get(), text.data(), text.size(), begin);
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (begin > 0) text.erase(0, text.find('\n') + 1);
    death_.crashLog = std::move(text);
  }
}

// ---- Publishing ------------------------------------------------------------------------------

Answer WorkerLink::exchange(ipc::Operation operation, RequestDraft& draft, const Deadline& deadline,
                            CancellationToken* cancellation, Migration* migration) {
  checkNotForked(generation_);
  if (dead()) {
    draft.writer.releaseStorages();
    return {shared_from_this(), nullptr, 0, RequestOutcome::kNeverStarted};
  }
  collectReturnedLeases();
  const ProcessorLoad::BusyWorker busy(callsUnderWay_);
  std::optional<ProcessorLoad::Spinner> spinner(std::in_place);
  Published published{};
  try {
    exportStorages(draft, deadline);
    published = publish(operation, draft, deadline, spinner->granted(), cancellation);
    draft.writer.releaseStorages();
  } catch (...) {
    cancelExports(draft.exports);
    draft.writer.releaseStorages();
    throw;
  }
  if (published.request == nullptr) {
    cancelExports(draft.exports);
    // Nobody waits here who would find the death: until it is settled the pool would send us back.
    if (published.outcome == RequestOutcome::kNeverStarted) markDead();
    return {shared_from_this(), nullptr, 0, published.outcome};
  }
  const uint64_t sequence = published.request->sequence;
  const Waited waited = wait(*published.request, deadline, cancellation, migration, spinner);
  if (cancellation != nullptr) cancellation->leave(waited.outcome);
  if (migration != nullptr) migration->requestEnded();
  if (waited.outcome == RequestOutcome::kOverdue && timeIsOver(sequence)) {
    std::lock_guard lock(deathMutex_);
    throw LimitExceeded(name_ + ": " + timeOverText_);
  }
  return {shared_from_this(), waited.abandoned ? nullptr : published.request, sequence,
          waited.outcome};
}

WorkerLink::Published WorkerLink::publish(ipc::Operation operation, RequestDraft& draft,
                                          const Deadline& deadline, bool workerMaySpin,
                                          CancellationToken* cancellation) {
  ipc::OutgoingCall call;
  call.operation = operation;
  call.flags = draft.modes | draft.flags;
  void* blob = nullptr;
  placePayload(draft.writer.finish(draft.records), call.payload, blob, deadline);
  const auto dropBlob = [&] {
    if (blob != nullptr) InputArena::instance().dropReference(blob);
  };

  std::unique_lock lock(publishMutex_);
  ipc::ClientEnd& end = memory_->end();
  for (;;) {
    if (workerDied()) {
      dropBlob();
      return {nullptr, RequestOutcome::kNeverStarted};
    }
    if (!refusal_.empty()) {
      dropBlob();
      throw SupervisorLost(refusal_);
    }
    if (releasesWaiting_.load(std::memory_order_relaxed) > 0 && end.canPublish()) flushReleases();
    const PendingRequest& next = *pendingRequests_[nextSequence_ % ipc::kRingSlots];
    if (next.use.load(std::memory_order_acquire) == PendingRequest::Use::kFree && end.canPublish())
      break;
    if (isPast(deadline)) {
      dropBlob();
      const uint64_t last = nextSequence_ - 1;
      lock.unlock();
      killIfStuck(last, Clock::now());
      return {nullptr, RequestOutcome::kWithdrawn};
    }
    // Every slot is taken. Answers that nobody waits for any more are consumed here.
    lock.unlock();
    if (!end.submissionsConsistent()) poison("it counts more taken calls than were made");
    deliverUnlessLed();
    killIfBlocked();
    lock.lock();
    slotFreed_.wait_for(lock, milliseconds(1));
  }
  PendingRequest& request = *pendingRequests_[nextSequence_ % ipc::kRingSlots];
  if (deadline) {
    request.publishedAt = Clock::now();
    // What is not published can't start in the moment before it is taken back.
    if (request.publishedAt >= *deadline) {
      dropBlob();
      return {nullptr, RequestOutcome::kWithdrawn};
    }
  }
  std::unique_lock<std::mutex> cancellationLock;
  if (cancellation != nullptr) {
    cancellationLock = std::unique_lock(cancellation->mutex_);
    if (cancellation->requested()) {
      dropBlob();
      return {nullptr, RequestOutcome::kWithdrawn};
    }
    cancellation->enter(*this, request, nextSequence_);
  }
  request.sequence = nextSequence_++;
  request.operation = operation;
  unawaited_.published(request.sequence, operation, /*notification=*/false);
  request.exports.swap(draft.exports);
  request.requestBlob = blob;
  request.answerBlob.clear();
  request.outcome.store(RequestOutcome::kPending, std::memory_order_relaxed);
  request.use.store(PendingRequest::Use::kWaiting, std::memory_order_release);
  pending_.fetch_add(1, std::memory_order_relaxed);
  ipc::reachCrashPoint(ipc::CrashPoint::kExchangeEntered);
  end.allowSpin(workerMaySpin ? kSpinAllowanceMicroseconds : 0, ipc::currentProcessor());
  end.publish(call);
  return {&request, RequestOutcome::kPending};
}

bool WorkerLink::notify(ipc::Operation operation, RequestDraft& draft) {
  if (generation_ != forkGeneration()) return false;
  const std::span<const std::byte> payload = draft.writer.finish({});
  if (payload.size() > ipc::kInlineBytes) return false;
  std::lock_guard lock(publishMutex_);
  if (workerDied() || !refusal_.empty() || !memory_->end().canPublish()) return false;
  ipc::OutgoingCall call;
  call.operation = operation;
  call.payload.inlineBytes = payload;
  publishNotification(call);
  return true;
}

void WorkerLink::releaseHandle(base::HandleId handle) noexcept {
  if (generation_ != forkGeneration() || dead()) return;
  {
    std::lock_guard lock(releasesMutex_);
    try {
      releases_.push_back(handle.value);
    } catch (const std::bad_alloc&) {
      return;
    }
    releasesWaiting_.store(static_cast<uint32_t>(releases_.size()), std::memory_order_relaxed);
    if (releases_.size() < kReleaseBatch) return;
  }
  tryFlushReleases();
}

void WorkerLink::releaseObj(base::HandleId handle) noexcept {
  releaseHandle(handle);
  if (objs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (generation_ != forkGeneration() || dead()) return;
  tryFlushReleases();
}

// Who holds the mutex publishes a request, and looks for releases first or has just done so.
void WorkerLink::tryFlushReleases() noexcept {
  std::unique_lock lock(publishMutex_, std::try_to_lock);
  while (lock.owns_lock() && releasesWaiting_.load(std::memory_order_relaxed) > 0 &&
         !workerDied() && refusal_.empty() && memory_->end().canPublish()) {
    if (!flushReleases()) return;
  }
}

// Needs publishMutex_ and room in the ring. False if there is no memory for it now: they wait on.
bool WorkerLink::flushReleases() noexcept try {
  constexpr size_t kMost = 2 * kReleaseBatch;  // at most 9 bytes each: they fit into a slot
  static_assert(kMost * 7 < ipc::kInlineBytes);
  ipc::PayloadWriter writer;
  ipc::OutgoingCall call;
  call.operation = ipc::Operation::kReleaseHandles;
  {
    std::lock_guard lock(releasesMutex_);
    // Handles count up from 1, so five bytes each are the rule; nine never overflow half a batch.
    const size_t count =
        std::min(releases_.size(), releases_.back() >> 32 == 0 ? kMost : kMost / 2);
    writer.packer().pack_array(static_cast<uint32_t>(count));
    for (size_t i = 0; i < count; ++i) writer.packer().pack(releases_[releases_.size() - 1 - i]);
    call.payload.inlineBytes = writer.finish({});
    releases_.resize(releases_.size() - count);
    releasesWaiting_.store(static_cast<uint32_t>(releases_.size()), std::memory_order_relaxed);
  }
  publishNotification(call);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// Needs publishMutex_ and room in the ring.
void WorkerLink::publishNotification(ipc::OutgoingCall& call) {
  call.flags = ipc::kNoReply;
  const uint64_t sequence = nextSequence_++;
  unawaited_.published(sequence, call.operation, /*notification=*/true);
  unawaited_.add(sequence);
  memory_->end().publish(call);
}

// ---- Waiting ---------------------------------------------------------------------------------

WorkerLink::Waited WorkerLink::wait(PendingRequest& request, const Deadline& deadline,
                                    const CancellationToken* cancellation, Migration* migration,
                                    std::optional<ProcessorLoad::Spinner>& spinner) {
  // Most answers are there after the first wait: until then nothing looks at the clock.
  for (bool waited = false;; waited = true) {
    const uint32_t signal = request.signal.load(std::memory_order_acquire);
    const RequestOutcome outcome = request.outcome.load(std::memory_order_acquire);
    if (outcome != RequestOutcome::kPending) return {outcome, /*abandoned=*/false};
    const bool past = isPast(deadline) || timeIsOver(request.sequence);
    const bool takenBack =
        (cancellation != nullptr && cancellation->requested()) ||
        (waited && migration != nullptr && !past && migrates(request, *migration));
    if (takenBack || past) {
      if (const auto given = giveUp(request, takenBack)) return {*given, /*abandoned=*/true};
      continue;
    }
    if (leadMutex_.try_lock()) {
      lead(request, deadline, cancellation, migration, spinner);
      leadMutex_.unlock();
      passLead();
      continue;
    }
    spinner.reset();
    request.sleep(signal, untilItLooks(deadline, migration));
  }
}

void WorkerLink::lead(PendingRequest& request, const Deadline& deadline,
                      const CancellationToken* cancellation, const Migration* migration,
                      std::optional<ProcessorLoad::Spinner>& spinner) {
  ipc::ClientEnd& end = memory_->end();
  const int64_t began = ipc::monotonicNow();
  const bool maySpin = spinner && spinner->granted() && !end.workerSleepsHere();
  const auto spun = ipc::spinUntil([&] { return end.completionReady(); }, began,
                                   maySpin ? spin_.nanoseconds() : 0);
  struct Leader {
    WorkerLink& channel;
    ipc::ClientEnd& end;
    PendingRequest& request;
    const Deadline& deadline;
    const CancellationToken* cancellation;
    const Migration* migration;
    std::optional<ProcessorLoad::Spinner>& spinner;
    std::array<ipc::FutexWatch, 2> watches{};
    bool slept = false;

    void deliver() {
      if (!channel.deliverCompletions()) channel.poison("its completion ring is inconsistent");
    }
    bool hasOutcome() const {
      return request.outcome.load(std::memory_order_acquire) != RequestOutcome::kPending;
    }
    bool workerDied() const { return channel.workerDied(); }
    void settle() { channel.settleAll(); }
    bool leaves() const {
      return isPast(deadline) || (cancellation != nullptr && cancellation->requested()) ||
             (migration != nullptr && migration->due()) || channel.timeIsOver(request.sequence);
    }
    void watch() {
      spinner.reset();
      watches = {end.completionWatch(), ipc::watchLivenessWord(end.peer())};
    }
    void sleep() {
      slept = true;
      ipc::futexWait(watches, untilItLooks(deadline, migration));
      if (!completionReady()) channel.killIfBlocked();
    }
    bool completionReady() const { return end.completionReady(); }
    void announceSleep() { end.announceSleep(); }
    void withdrawSleep() { end.withdrawSleep(); }
  } leader{*this, end, request, deadline, cancellation, migration, spinner};
  if (!ipc::awaitOutcome(leader)) return;
  spin_.waited(spun && !leader.slept ? *spun : ipc::monotonicNow() - began);
}

// Needs leadMutex_. False if the ring is nonsense.
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
    const bool delivered = deliver(request);
    ipc::reachCrashPoint(ipc::CrashPoint::kCompletionDelivered);
    if (!delivered) return false;
  }
  return true;
}

bool WorkerLink::deliver(PendingRequest& request) {
  auto waiting = PendingRequest::Use::kWaiting;
  const bool wanted = request.use.compare_exchange_strong(waiting, PendingRequest::Use::kDelivering,
                                                          std::memory_order_acq_rel);
  ipc::ReceivedCompletion& completion = request.completion;
  completion.sequence = received_.sequence;
  completion.status = received_.status;
  completion.payload = received_.payload;
  std::memcpy(completion.bytes, received_.bytes, received_.payload.inlineBytes);
  bool whole = true;
  if (completion.payload.blobBytes != 0) {
    const auto blob = memory_->find(base::SegmentId(completion.payload.blobSegment),
                                    completion.payload.blobOffset, completion.payload.blobBytes);
    whole = blob.has_value();
    try {
      if (whole) request.answerBlob.assign(blob->begin(), blob->end());
    } catch (const std::bad_alloc&) {
      // Nobody but us can end what is delivered: the caller learns that the worker is lost.
      whole = false;
    }
  }
  const bool withdrawn =
      completion.status == static_cast<uint32_t>(ipc::CompletionStatus::kWithdrawn);
  if (withdrawn) cancelExports(request.exports);
  // Before the request can be free and take a further call: with that one answered the ring would
  // hold more than it has slots.
  memory_->end().consumed();
  // Before its thread goes on, and looks for a worker that is idle.
  pending_.fetch_sub(1, std::memory_order_relaxed);
  if (held()) held_.store(false, std::memory_order_relaxed);
  unawaited_.answered(received_.sequence);
  // Last of all its outcome: from there on the request is its thread's, which may free it at once.
  if (wanted) request.use.store(PendingRequest::Use::kDelivered, std::memory_order_relaxed);
  request.outcome.store(withdrawn ? RequestOutcome::kWithdrawn : RequestOutcome::kAnswered,
                        std::memory_order_release);
  if (wanted) {
    request.wake();
  } else {
    abandoned_.fetch_sub(1, std::memory_order_relaxed);
    if (whole && !withdrawn) discard(request);
    release(request);
  }
  return whole;
}

// An answer that nobody takes: what the worker lent with it goes back.
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

// Then one of those that still wait leads.
void WorkerLink::deliverUnlessLed() {
  if (!leadMutex_.try_lock()) return;
  deliverCompletions();
  leadMutex_.unlock();
  passLead();
}

// The lead is free: one of the threads that still wait takes it.
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

// Needs leadMutex_.
void WorkerLink::settleAll() {
  try {
    readDeath();
  } catch (const std::bad_alloc&) {
    // Told without its crash log; its calls have their outcome all the same.
  }
  const ipc::ClientEnd& end = memory_->end();
  bool first = false;
  {
    std::lock_guard lock(publishMutex_);
    first = !dead_.exchange(true, std::memory_order_acq_rel);
    ended_.store(true, std::memory_order_release);
    for (const auto& entry : pendingRequests_) {
      PendingRequest& request = *entry;
      const auto use = request.use.load(std::memory_order_acquire);
      if (use == PendingRequest::Use::kFree || request.outcome.load() != RequestOutcome::kPending)
        continue;
      const RequestOutcome outcome = outcomeAtDeath(end.hasStarted(request.sequence));
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
        release(request);
      }
    }
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kCallsSettled);
  // A channel may also end because we leave a worker that lives on.
  try {
    if (first && deathReport_ && deathSeen_.load(std::memory_order_relaxed)) deathReport_("");
  } catch (const std::bad_alloc&) {
    // The supervisor will see it as well, a little later.
  }
}

// The deadline has passed, or the request was taken back. Nothing if the answer came in the same
// moment.
std::optional<RequestOutcome> WorkerLink::giveUp(PendingRequest& request, bool takenBack) {
  const uint64_t sequence = request.sequence;
  const Clock::time_point publishedAt = request.publishedAt;
  const bool prepares = ipc::isPreparation(request.operation);
  if (prepares) request.leftAt = Clock::now();
  // The answer may lie there.
  deliverUnlessLed();
  auto waiting = PendingRequest::Use::kWaiting;
  // A completion that is being delivered right now wins. From here on the request is not ours.
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
  // This thread may be the one that was woken to lead.
  deliverUnlessLed();
  // Answered in this very moment: the worker is done with it.
  if (request.use.load(std::memory_order_acquire) != PendingRequest::Use::kAbandoned)
    return outcome;
  // What a preparation brings will be there for the next call; what runs for too long the
  // supervisor knows.
  if (takenBack || timeOver || (outcome == RequestOutcome::kOverdue && prepares)) return outcome;
  if (outcome == RequestOutcome::kWithdrawn) {
    killIfStuck(sequence, publishedAt);
  } else if (sharedWorker_) {
    sharedWorker_->overdue(sequence);
  } else {
    kill("a call was past its deadline");
  }
  return outcome;
}

// The request has waited for long. True if it was taken back, to be sent to the worker where a
// place is reserved for it.
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

// The one that waits may lead, and so sleep on the ring. A call that comes between its look and its
// sleep is found within kLongestSleep.
void WorkerLink::wakeWaiter(PendingRequest& request) {
  request.wake();
  ipc::futexWake(memory_->end().peer().completionTail);
}

// A deadline has passed before this request, or one behind it, started. A worker that is stopped,
// or hangs in its preparation, would cost every caller a deadline.
void WorkerLink::killIfStuck(uint64_t sequence, Clock::time_point calledAt) {
  const ipc::WorkerControl& peer = memory_->end().peer();
  const Clock::time_point now = Clock::now();
  bool stopped = false;
  bool hangs = false;
  {
    std::lock_guard lock(publishMutex_);
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

// Needs publishMutex_.
bool WorkerLink::hangsInPreparation(Clock::time_point now) const {
  const uint64_t started = memory_->end().peer().startedSequence.load(std::memory_order_relaxed);
  return std::any_of(pendingRequests_.begin(), pendingRequests_.end(), [&](const auto& request) {
    return request->use.load(std::memory_order_acquire) == PendingRequest::Use::kAbandoned &&
           request->sequence == started && ipc::isPreparation(request->operation) &&
           now - request->leftAt >= kLongestPreparation;
  });
}

bool WorkerLink::lookAtUnawaitedWork() {
  if (dead() || !unawaited_.any()) return false;
  killIfBlocked();
  return true;
}

// Work that no thread waits for may not take a worker from those that call.
void WorkerLink::killIfBlocked() {
  if (unawaited_.cleanupLimit().count() == 0) return;
  std::optional<UnawaitedWork::Blocked> blocked;
  uint64_t taken = 0;
  {
    std::lock_guard lock(publishMutex_);
    const uint64_t published = nextSequence_ - 1;
    blocked = unawaited_.overLimit(published);
    taken = unawaited_.taken(published);
  }
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
    sharedWorker_->overdue(taken);  // its supervisor sees for itself that it runs on
  }
}

void WorkerLink::release(PendingRequest& request) {
  request.exports.clear();
  request.answerBlob.clear();
  if (request.answerBlob.capacity() > (size_t{1} << 20)) request.answerBlob.shrink_to_fit();
  if (request.requestBlob != nullptr) {
    InputArena::instance().dropReference(std::exchange(request.requestBlob, nullptr));
  }
  request.use.store(PendingRequest::Use::kFree, std::memory_order_release);
  slotFreed_.notify_one();
}

}  // namespace isopool::client
