// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/worker_link.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/await_readable.h"
#include "base/pidfd.h"
#include "base/procfs.h"
#include "base/without_cancellation.h"
#include "client/transport/input_arena.h"
#include "client/transport/migration.h"
#include "client/transport/pending_request.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/channel/preparation.h"
#include "ipc/crash_point.h"

namespace isopool::client {

namespace {

using std::chrono::milliseconds;

// How long the supervisor may take to report how a worker died. It reaps within milliseconds.
constexpr milliseconds kPatienceForCause(500);
constexpr size_t kReleaseBatch = 128;

// A request that has run for this time keeps its worker occupied: new sessions use another worker.
constexpr int64_t kLongRequest = 10'000'000;  // ns
constexpr uint32_t kDegrees = 5;              // the most that occupied() returns

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
  InputArena::instance().addLender(*this);
}

WorkerLink::~WorkerLink() {
  InputArena::instance().removeLender(*this);
  loans_.collectAll([](const void* block) { InputArena::instance().dropReference(block); });
}

uint64_t WorkerLink::nextNumber() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void WorkerLink::loseSupervisor(const std::string& text) {
  base::MutexLock lock(deathMutex_);
  supervisorLoss_ = text;
}

std::string WorkerLink::supervisorLoss() {
  base::MutexLock lock(deathMutex_);
  return supervisorLoss_;
}

void WorkerLink::assume(uint32_t pool, uint32_t slot) {
  base::MutexLock lock(deathMutex_);
  place_ = Place{pool, slot};
  slot_ = slot;
  name_ = "worker " + std::to_string(slot) + " (pid " + std::to_string(processId_) + ")";
}

std::optional<WorkerLink::Place> WorkerLink::place() {
  base::MutexLock lock(deathMutex_);
  return place_;
}

std::string WorkerLink::name() {
  base::MutexLock lock(deathMutex_);
  return name_;
}

bool WorkerLink::processGone(milliseconds patience) const {
  return base::awaitReadable(pidfd_.get(), patience);
}

// A death that was seen once stays: a hostile worker may change the liveness word again.
bool WorkerLink::workerDied() const {
  if (ended()) return true;
  const bool died =
      ipc::livenessWordOwnerDied(memory_->end().peer()) || (!livenessWordWorks_ && processGone());
  if (died) deathSeen_.store(true, std::memory_order_relaxed);
  return died;
}

void WorkerLink::kill(const std::string& reason, bool overdue) {
  if (overdue) endedByCaller_.store(true, std::memory_order_relaxed);
  if (sharedWorker_) return sharedWorker_->kill(reason);
  // Reported first, so that the supervisor has the reason when it sees the worker end.
  try {
    if (deathReport_) deathReport_(reason, overdue);
  } catch (const std::bad_alloc&) {
    // The supervisor then takes it for a kill from outside.
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
  // The pool itself counts this program's calls; one that has just been answered may still be on
  // the status page.
  if (running == 0 || running == sharedWorker_->client) return 0;
  return 1 + statusPage->waitingClients.load(std::memory_order_relaxed);
}

bool WorkerLink::ranOtherProgram() const {
  const ipc::WorkerStatusPage* statusPage = memory_->statusPage();
  if (!sharedWorker_ || statusPage == nullptr) return false;
  uint64_t client = statusPage->runningClient.load(std::memory_order_relaxed);
  if (client == 0) client = statusPage->lastClient.load(std::memory_order_relaxed);
  return client != 0 && client != sharedWorker_->client;
}

uint32_t WorkerLink::awaited() const {
  const auto awaited = static_cast<int32_t>(pending_.load(std::memory_order_relaxed)) -
                       abandoned_.load(std::memory_order_relaxed);
  return static_cast<uint32_t>(std::max(awaited, 0));
}

uint32_t WorkerLink::load() const { return awaited() + (unawaited_.any() ? 1 : 0); }

std::chrono::nanoseconds WorkerLink::runningFor() const {
  const ipc::WorkerStatusPage* statusPage = memory_->statusPage();
  if (statusPage == nullptr) return {};
  const int64_t since = statusPage->runningSince.load(std::memory_order_relaxed);
  if (statusPage->runningClient.load(std::memory_order_relaxed) == 0) return {};
  return std::chrono::nanoseconds(std::max<int64_t>(ipc::monotonicNow() - since, 0));
}

uint64_t WorkerLink::residentBytes() const {
  const base::WithoutCancellation complete;
  const pid_t number = base::processOf(pidfd_).value_or(0);
  return number == 0 ? 0 : base::residentAnonymousBytes(number);
}

uint32_t WorkerLink::occupied() const {
  const bool left = unawaited_.any();
  const ipc::WorkerStatusPage* statusPage = memory_->statusPage();
  const uint64_t running =
      statusPage == nullptr ? 0 : statusPage->runningClient.load(std::memory_order_relaxed);
  if (running == 0) return left ? 1 : 0;
  // A worker that loses its processor after its answer and before it clears the status page has no
  // work for this process.
  const bool ours = !sharedWorker_ || running == sharedWorker_->client;
  if (ours && !left && awaited() == 0) return 0;
  const int64_t time =
      ipc::monotonicNow() - statusPage->runningSince.load(std::memory_order_relaxed);
  uint32_t degree = left ? 1 : 0;
  for (int64_t bound = kLongRequest; time > bound && degree < kDegrees; bound *= 10) ++degree;
  return degree;
}

bool WorkerLink::cleansUp() {
  base::MutexLock lock(publishMutex_);
  return unawaited_.cleansUp(nextSequence_ - 1);
}

void WorkerLink::callTimeOver(uint64_t sequence, const std::string& text) {
  {
    base::MutexLock lock(deathMutex_);
    timeOverText_ = text;
  }
  timeOver_.store(sequence, std::memory_order_release);
  wakeWaiter(*pendingRequests_[sequence % ipc::kRingSlots]);
}

void WorkerLink::refuseRequests(const std::string& text) {
  base::MutexLock lock(publishMutex_);
  refusal_ = text;
}

void WorkerLink::pauseRequests(bool paused) {
  {
    base::MutexLock lock(publishMutex_);
    paused_ = paused;
  }
  slotFreed_.notify_all();
}

void WorkerLink::retire() {
  {
    base::MutexLock lock(publishMutex_);
    retired_ = true;
  }
  slotFreed_.notify_all();
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

// The worker's crash log then contains the reason.
void WorkerLink::killBecause(const std::string& reason) {
  {
    base::MutexLock lock(deathMutex_);
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
    // The leader settles the requests; it may be asleep on this word.
    ipc::futexWake(memory_->end().peer().completionTail);
  }
}

void WorkerLink::reaped(int signal, int exitCode) {
  {
    base::MutexLock lock(deathMutex_);
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
  base::MutexLock lock(deathMutex_);
  return death_.causeKnown;
}

WorkerLost::Death WorkerLink::death() {
  const base::WithoutCancellation complete;
  readDeath();
  base::MutexLock lock(deathMutex_);
  // The exit code was 0, or the process was reaped before it could be read: the supervisor is about
  // to report the cause.
  base::RunningTime waited;
  while (!death_.causeKnown && waited.look(Clock::now()) < kPatienceForCause) {
    causeTold_.wait_for(lock, base::RunningTime::kBetweenLooks);
  }
  return death_;
}

// The kernel sets the exit code before it tears down the address space, long before the process can
// be reaped: it is the last field of the process's stat line (proc(5)).
void WorkerLink::readDeath() {
  base::MutexLock lock(deathMutex_);
  if (deathRead_) return;
  deathRead_ = true;
  death_.worker = name_;
  death_.processId = processId_;
  // Not processId_, the supervisor's number for the worker: in this PID namespace that may be the
  // number of another process.
  const pid_t number = base::processOf(pidfd_).value_or(0);
  if (!death_.causeKnown && number != 0) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/stat", number);
    if (FILE* file = std::fopen(path, "re")) {
      char line[2048];
      const size_t length = std::fread(line, 1, sizeof line - 1, file);
      std::fclose(file);
      line[length] = '\0';
      // The number belongs to the worker only until the worker is reaped.
      const bool same = base::processOf(pidfd_) == number;
      const char* lastField = std::strrchr(line, ' ');
      if (same && lastField != nullptr) {
        const int code = std::atoi(lastField + 1);
        death_.signal = code & 0x7f;
        death_.exitCode = (code >> 8) & 0xff;
        // A living process has zero, too.
        death_.causeKnown = code != 0;
      }
    }
  }
  death_.ofOtherProgram = ranOtherProgram();
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
    published = publish(operation, draft, deadline, spinner->granted(), cancellation, migration);
    draft.writer.releaseStorages();
  } catch (...) {
    cancelExports(draft.exports);
    draft.writer.releaseStorages();
    throw;
  }
  if (published.request == nullptr) {
    cancelExports(draft.exports);
    // No thread may be waiting here that would find the death. Until the channel is dead, the pool
    // would choose this worker again.
    if (published.outcome == RequestOutcome::kNeverStarted && workerDied()) markDead();
    return {shared_from_this(), nullptr, 0, published.outcome};
  }
  const uint64_t sequence = published.request->sequence;
  Waited waited = wait(*published.request, deadline, cancellation, migration, spinner);
  // The worker and recall() have seen each other's store: the call was not taken back, and the
  // worker has left it out. It is made again.
  if (waited.outcome == RequestOutcome::kWithdrawn && !waited.abandoned &&
      !(cancellation != nullptr && cancellation->requested()) &&
      !(migration != nullptr && migration->left())) {
    waited.outcome = RequestOutcome::kNeverStarted;
  }
  if (cancellation != nullptr) cancellation->leave(waited.outcome);
  if (migration != nullptr) migration->requestEnded();
  if (waited.outcome == RequestOutcome::kOverdue && timeIsOver(sequence)) {
    base::MutexLock lock(deathMutex_);
    throw LimitExceeded(name_ + ": " + timeOverText_);
  }
  return {shared_from_this(), waited.abandoned ? nullptr : published.request, sequence,
          waited.outcome, deadline};
}

WorkerLink::Published WorkerLink::publish(ipc::Operation operation, RequestDraft& draft,
                                          const Deadline& deadline, bool workerMaySpin,
                                          CancellationToken* cancellation,
                                          const Migration* migration) {
  ipc::OutgoingCall call;
  call.operation = operation;
  call.flags = draft.modes | draft.flags;
  void* blob = nullptr;
  placePayload(draft.writer.finish(draft.records), call.payload, blob, deadline);
  const auto dropBlob = [&] {
    if (blob != nullptr) InputArena::instance().dropReference(blob);
  };

  base::MutexLock lock(publishMutex_);
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
    if (paused_) [[unlikely]] {
      // The pool has another worker in its place.
      if (retired_ && migration != nullptr) {
        dropBlob();
        return {nullptr, RequestOutcome::kNeverStarted};
      }
      if (waitsInPause(deadline, cancellation, lock)) continue;
      dropBlob();
      return {nullptr, RequestOutcome::kWithdrawn};
    }
    if (releasesWaiting_.load(std::memory_order_relaxed) > 0 && end.canPublish()) flushReleases();
    // A request may define again what was forgotten.
    const bool inOrder = forgotten_.empty() || flushForgotten();
    const PendingRequest& next = *pendingRequests_[nextSequence_ % ipc::kRingSlots];
    if (inOrder && next.use.load(std::memory_order_acquire) == PendingRequest::Use::kFree &&
        end.canPublish())
      break;
    if (isPast(deadline)) {
      dropBlob();
      const uint64_t last = nextSequence_ - 1;
      lock.unlock();
      killIfStuck(last, runningTime());
      return {nullptr, RequestOutcome::kWithdrawn};
    }
    // Every slot is taken.
    const base::WithoutCancellation complete;
    // Consumes answers for which no thread waits any more.
    lock.unlock();
    if (!end.submissionsConsistent()) poison("it counts more taken calls than were made");
    deliverUnlessLed();
    killIfBlocked();
    lock.lock();
    slotFreed_.wait_for(lock, milliseconds(1));
  }
  PendingRequest& request = *pendingRequests_[nextSequence_ % ipc::kRingSlots];
  if (deadline || draft.runTime) request.time = base::RunningTime();
  if (deadline) {
    const Clock::time_point now = Clock::now();
    // Not published: a published request could start in the moment before it is taken back.
    if (now >= *deadline) {
      dropBlob();
      return {nullptr, RequestOutcome::kWithdrawn};
    }
    request.mayRun = *deadline - now;
    // While no thread waits, none looks.
    if (pending_.load(std::memory_order_relaxed) == 0) time_.skipTo(now);
    request.publishedAt = time_.look(now);
  }
  if (cancellation == nullptr) {
    return {&publishNext(operation, draft, call, blob, workerMaySpin), RequestOutcome::kPending};
  }
  base::MutexLock cancellationLock(cancellation->mutex_);
  if (cancellation->givenUp()) {
    dropBlob();
    return {nullptr, RequestOutcome::kWithdrawn};
  }
  cancellation->enter(*this, request, nextSequence_);
  return {&publishNext(operation, draft, call, blob, workerMaySpin), RequestOutcome::kPending};
}

// Waits a while, with `lock` released. False if the caller gives the request up. Clang does not
// follow a lock that is released meanwhile.
bool WorkerLink::waitsInPause(const Deadline& deadline, CancellationToken* cancellation,
                              base::MutexLock& lock) ISOPOOL_LOCKS_UNCHECKED {
  constexpr milliseconds kLook(100);
  if (isPast(deadline)) return false;
  const base::WithoutCancellation complete;
  const auto look = Clock::now() + kLook;
  slotFreed_.wait_until(lock, deadline ? std::min(*deadline, look) : look);
  if (cancellation == nullptr) return true;
  // A program's function may take its time.
  lock.unlock();
  const bool takenBack = cancellation->requested() || cancellation->stops();
  lock.lock();
  return !takenBack;
}

// Publishes the call in the next slot, which is free.
PendingRequest& WorkerLink::publishNext(ipc::Operation operation, RequestDraft& draft,
                                        const ipc::OutgoingCall& call, void* blob,
                                        bool workerMaySpin) {
  PendingRequest& request = *pendingRequests_[nextSequence_ % ipc::kRingSlots];
  request.sequence = nextSequence_++;
  request.operation = operation;
  request.continuesPastDeadline = ipc::isPreparation(operation) && !draft.onlyForThisCaller;
  request.runTime = draft.runTime;
  request.runEnds.reset();
  unawaited_.published(request.sequence, operation, /*notification=*/false);
  request.exports.swap(draft.exports);
  draft.writer.swapVersions(request.versions);
  request.requestBlob = blob;
  request.answerBlob.clear();
  request.outcome.store(RequestOutcome::kPending, std::memory_order_relaxed);
  request.use.store(PendingRequest::Use::kWaiting, std::memory_order_release);
  const bool workerHadOthers = pending_.fetch_add(1, std::memory_order_relaxed) > 0;
  ipc::reachCrashPoint(ipc::CrashPoint::kExchangeEntered);
  // The time that the worker waited for this call, had no thread of this process slept.
  if (const int64_t answered = answered_.load(std::memory_order_relaxed); answered != 0) {
    workerSpin_.worked(workerHadOthers ? 0 : ipc::monotonicNow() - answered);
  }
  const int64_t spin = workerMaySpin ? workerSpin_.nanoseconds() : 0;
  ipc::ClientEnd& end = memory_->end();
  end.allowSpin(static_cast<uint32_t>(spin / 1000), ipc::currentProcessor());
  end.publish(call);
  return request;
}

bool WorkerLink::notify(ipc::Operation operation, RequestDraft& draft) {
  if (generation_ != forkGeneration()) return false;
  const std::span<const std::byte> payload = draft.writer.finish({});
  if (payload.size() > ipc::kInlineBytes) return false;
  base::MutexLock lock(publishMutex_);
  if (workerDied() || !refusal_.empty() || !flushForgotten() || !memory_->end().canPublish()) {
    return false;
  }
  ipc::OutgoingCall call;
  call.operation = operation;
  call.payload.inlineBytes = payload;
  publishNotification(call);
  return true;
}

void WorkerLink::forgetObject(uint64_t object) {
  if (generation_ != forkGeneration() || dead()) return;
  base::MutexLock lock(publishMutex_);
  if (workerDied() || !refusal_.empty()) return;
  forgotten_.push_back(object);
  if (!flushForgotten()) unawaited_.watch();
}

bool WorkerLink::tryFlushForgotten() {
  base::MutexLock lock(publishMutex_);
  return workerDied() || !refusal_.empty() || flushForgotten();
}

bool WorkerLink::flushForgotten() {
  while (!forgotten_.empty() && memory_->end().canPublish()) {
    ipc::PayloadWriter writer;
    writer.packer().pack_array(1).pack(forgotten_.back());
    ipc::OutgoingCall call;
    call.operation = ipc::Operation::kForgetObject;
    call.payload.inlineBytes = writer.finish({});
    publishNotification(call);
    forgotten_.pop_back();
  }
  return forgotten_.empty();
}

void WorkerLink::releaseHandle(base::HandleId handle) noexcept {
  if (generation_ != forkGeneration() || dead()) return;
  {
    base::MutexLock lock(releasesMutex_);
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

// If another thread holds the mutex, it publishes a request, and sends releases before that or has
// just done so.
void WorkerLink::tryFlushReleases() noexcept {
  if (!publishMutex_.try_lock()) return;
  base::MutexLock lock(publishMutex_, std::adopt_lock);
  while (releasesWaiting_.load(std::memory_order_relaxed) > 0 && !workerDied() &&
         refusal_.empty() && memory_->end().canPublish()) {
    if (!flushReleases()) return;
  }
}

// Needs room in the ring. False if there is no memory: the releases keep waiting.
bool WorkerLink::flushReleases() noexcept try {
  constexpr size_t kMost = 2 * kReleaseBatch;  // fit into a slot with at most 5 bytes each
  static_assert(kMost * 7 < ipc::kInlineBytes);
  ipc::PayloadWriter writer;
  ipc::OutgoingCall call;
  call.operation = ipc::Operation::kReleaseHandles;
  {
    base::MutexLock lock(releasesMutex_);
    // Handles count up from 1, so most need five bytes; half a batch has room for nine bytes each.
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

// Needs room in the ring.
void WorkerLink::publishNotification(ipc::OutgoingCall& call) {
  call.flags = ipc::kNoReply;
  const uint64_t sequence = nextSequence_++;
  unawaited_.published(sequence, call.operation, /*notification=*/true);
  unawaited_.add(sequence);
  memory_->end().publish(call);
}

}  // namespace isopool::client
