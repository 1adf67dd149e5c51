// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

/// Every place where a process may be killed and the others must not notice more than the death:
/// after each store to shared memory, each message, each change of state. A test arms one of them
/// and the process kills itself there (SIGKILL, so nothing is cleaned up).
///
/// One list for each kind of process that comes there, in the order in which it does. The
/// enumerator of SlotWritten is CrashPoint::kSlotWritten, its name slotWritten: both are made from
/// this list.
namespace isopool::ipc {

// NOLINTBEGIN(cppcoreguidelines-macro-usage): a list that is read more than once.

/// A client.
#define ISOPOOL_CRASH_POINTS_OF_CLIENTS(POINT)      \
  /* It comes to a supervisor. */                   \
  POINT(SupervisorStarted)                          \
  POINT(SupervisorConnected)                        \
  POINT(HelloSent)                                  \
  POINT(WelcomeReceived)                            \
  POINT(PoolOpened)                                 \
  /* It attaches to a worker. */                    \
  POINT(IntroductionReceived)                       \
  POINT(ClientSegmentSealed)                        \
  POINT(ChannelMappedSent)                          \
  POINT(SlotTakenOver)                              \
  /* What it tells the supervisor of its memory. */ \
  POINT(InputSegmentDeclared)                       \
  POINT(PackageDeclared)                            \
  POINT(PackageConfirmed)                           \
  POINT(PackageUnloaded)                            \
  POINT(OutputSegmentMapped)                        \
  /* It publishes a call. */                        \
  POINT(TurnTaken)                                  \
  POINT(InputLent)                                  \
  POINT(ExchangeEntered)                            \
  POINT(SpinAllowanceStored)                        \
  POINT(SubmissionSlotWritten)                      \
  POINT(SubmissionTailStored)                       \
  POINT(SubmissionWoken)                            \
  POINT(RecallStored)                               \
  POINT(CallAbandoned)                              \
  /* It consumes a completion. */                   \
  POINT(CompletionHeadStored)                       \
  POINT(CompletionDelivered)                        \
  POINT(ResultAdopted)                              \
  /* A worker has died, is let go, or is left. */   \
  POINT(CallsSettled)                               \
  POINT(DeathReported)                              \
  POINT(CallRerun)                                  \
  POINT(DeathTold)                                  \
  POINT(WorkerReleaseSent)                          \
  POINT(PoolClosed)                                 \
  POINT(ChannelLeft)                                \
  POINT(DrainAcknowledged)                          \
  POINT(SupervisorLossSeen)

/// A worker.
#define ISOPOOL_CRASH_POINTS_OF_WORKERS(POINT) \
  /* It begins its life. */                    \
  POINT(WorkerForked)                          \
  POINT(WorkerSetUp)                           \
  POINT(WorkerSandboxed)                       \
  POINT(StatusPageSealed)                      \
  POINT(WorkerReady)                           \
  /* It attaches a channel. */                 \
  POINT(WorkerSegmentSealed)                   \
  POINT(ChannelMapped)                         \
  POINT(OutputSegmentAdded)                    \
  POINT(LivenessWordHeld)                      \
  POINT(ChannelAttached)                       \
  POINT(ChannelAttachedSent)                   \
  POINT(InputSegmentMapped)                    \
  POINT(PackageMapped)                         \
  POINT(PackageUnmapped)                       \
  /* It consumes a call. */                    \
  POINT(StatusPageBusyStored)                  \
  POINT(SubmissionCopied)                      \
  POINT(SubmissionHeadStored)                  \
  POINT(StartedStored)                         \
  POINT(CallReturned)                          \
  /* It publishes a result. */                 \
  POINT(OutputSegmentRequested)                \
  POINT(ResultLent)                            \
  POINT(KeptBlockPrivatised)                   \
  POINT(KeptBlockRestored)                     \
  POINT(ResultExported)                        \
  POINT(CompletionCounted)                     \
  POINT(CompletionSlotWritten)                 \
  POINT(CompletionTailStored)                  \
  POINT(CompletionWoken)                       \
  POINT(StatusPageIdleStored)                  \
  POINT(StatusPageBooksStored)                 \
  /* It forgets a client. */                   \
  POINT(ClientObjectsDropped)                  \
  POINT(KeptMemoryPrivatised)                  \
  POINT(OutputSegmentsLeft)                    \
  POINT(ChannelDetached)                       \
  POINT(ChannelDetachedSent)

/// A client and a worker, each at its end of a channel.
#define ISOPOOL_CRASH_POINTS_OF_EITHER_END(POINT) \
  /* What was borrowed goes back. */              \
  POINT(LeaseReturned)                            \
  POINT(LeaseGroupCounted)                        \
  /* It sleeps. */                                \
  POINT(SleepAnnounced)                           \
  POINT(SleepWithdrawn)

/// A supervisor.
#define ISOPOOL_CRASH_POINTS_OF_SUPERVISORS(POINT)            \
  /* It starts. */                                            \
  POINT(SupervisorGuarded)                                    \
  POINT(SupervisorListening)                                  \
  POINT(ZygoteSpawned)                                        \
  POINT(ZygoteSeenReady)                                      \
  /* A client comes. */                                       \
  POINT(ClientAccepted)                                       \
  POINT(ClientWelcomed)                                       \
  POINT(PoolJoined)                                           \
  /* A worker is made and serves. */                          \
  POINT(ForkRequestSent)                                      \
  POINT(ForkSettled)                                          \
  POINT(WorkerSeenReady)                                      \
  POINT(ChannelMemoryMade)                                    \
  POINT(WorkerIntroduced)                                     \
  POINT(AttachChannelSent)                                    \
  POINT(ClientMemoryTold)                                     \
  POINT(AttachmentUsable)                                     \
  POINT(SpareAssigned)                                        \
  /* What clients load, and what workers need for results. */ \
  POINT(PackageHeldSent)                                      \
  POINT(PackageForgotten)                                     \
  POINT(OutputSegmentMade)                                    \
  POINT(OutputSegmentGranted)                                 \
  POINT(AddOutputSegmentSent)                                 \
  /* A worker dies or is relieved. */                         \
  POINT(DeathSeen)                                            \
  POINT(ReplacementAsked)                                     \
  POINT(WorkerReaped)                                         \
  POINT(WorkerDiedSent)                                       \
  POINT(OrphansSwept)                                         \
  POINT(RetireWorkerSent)                                     \
  /* A client leaves, and the end. */                         \
  POINT(DetachChannelSent)                                    \
  POINT(AttachmentClosed)                                     \
  POINT(ChannelClosedSent)                                    \
  POINT(ClientForgotten)                                      \
  POINT(DrainSent)                                            \
  POINT(Drained)

/// A zygote, or the process between it and a worker.
#define ISOPOOL_CRASH_POINTS_OF_ZYGOTES(POINT) \
  POINT(ZygoteReadySent)                       \
  POINT(ForkRequestTaken)                      \
  POINT(WorkerForkedBetween)                   \
  POINT(WorkerBorn)                            \
  POINT(WorkerForkedSent)

/// A supervisor's guardian.
#define ISOPOOL_CRASH_POINTS_OF_GUARDIANS(POINT) \
  POINT(GuardianWatching)                        \
  POINT(SupervisorDeathSeen)

#define ISOPOOL_CRASH_POINTS(POINT)          \
  ISOPOOL_CRASH_POINTS_OF_CLIENTS(POINT)     \
  ISOPOOL_CRASH_POINTS_OF_WORKERS(POINT)     \
  ISOPOOL_CRASH_POINTS_OF_EITHER_END(POINT)  \
  ISOPOOL_CRASH_POINTS_OF_SUPERVISORS(POINT) \
  ISOPOOL_CRASH_POINTS_OF_ZYGOTES(POINT)     \
  ISOPOOL_CRASH_POINTS_OF_GUARDIANS(POINT)

enum class CrashPoint : uint32_t {
  kNone,
#define ISOPOOL_ENUMERATOR(Name) k##Name,
  ISOPOOL_CRASH_POINTS(ISOPOOL_ENUMERATOR)
#undef ISOPOOL_ENUMERATOR
      kCount,
};

// NOLINTEND(cppcoreguidelines-macro-usage)

/// Which kind of process comes to a crash point.
enum class CrashPointOwner { kClient, kWorker, kEitherEnd, kSupervisor, kZygote, kGuardian };
CrashPointOwner crashPointOwner(CrashPoint point);

/// The name of a crash point as tests and environment variables spell it (`submissionTailStored`).
std::string_view crashPointName(CrashPoint point);
std::optional<CrashPoint> crashPointFromName(std::string_view name);

/// Arms `point` in this process: the n-th time (from 1) it is reached the process kills itself.
void armCrashPoint(CrashPoint point, uint32_t nth);

/// Arms what `variable` asks for in the environment, as NAME or NAME:NTH, or as the path of a file
/// that holds one of these: whoever comes first makes it PATH.PID and is armed, and nobody else is;
/// it is PATH.PID.reached when that process dies of it. Returns false if the variable is set and
/// names no crash point.
bool armCrashPointFromEnvironment(const char* variable);

/// The armed point; armCrashPoint() writes it.
extern std::atomic<uint32_t> armedCrashPoint;
void reachArmedCrashPoint() noexcept;

/// One comparison with a word that nobody writes: what is tested by killing is what is shipped.
inline void reachCrashPoint(CrashPoint point) noexcept {
  if (armedCrashPoint.load(std::memory_order_relaxed) == static_cast<uint32_t>(point))
      [[unlikely]] {
    reachArmedCrashPoint();
  }
}

}  // namespace isopool::ipc
