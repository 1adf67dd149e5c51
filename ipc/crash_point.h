// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

/// All crash points: one after each store to shared memory, each message and each change of state.
/// If a process dies at one, the other processes must notice its death and nothing else. A test
/// arms a crash point, and the process kills itself there (SIGKILL, so nothing is cleaned up).
///
/// One list for each kind of process, in the order in which the process reaches the points. The
/// entry SlotWritten is the enumerator CrashPoint::kSlotWritten with the name slotWritten: both are
/// made from these lists.
namespace isopool::ipc {

// NOLINTBEGIN(cppcoreguidelines-macro-usage): the lists are expanded more than once.

/// A client.
#define ISOPOOL_CRASH_POINTS_OF_CLIENTS(POINT)      \
  /* It connects to a supervisor. */                \
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
  /* It declares its memory to the supervisor. */   \
  POINT(InputSegmentDeclared)                       \
  POINT(PackageDeclared)                            \
  POINT(PackageConfirmed)                           \
  POINT(PackageUnloaded)                            \
  POINT(OutputSegmentMapped)                        \
  POINT(InputSegmentRetired)                        \
  POINT(OutputSegmentUnmapped)                      \
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
  /* A worker has died, is released or detached. */ \
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
  /* It starts. */                             \
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
  POINT(InputSegmentLeft)                      \
  POINT(InputSegmentUnmappedSent)              \
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
  POINT(OutputSegmentRetired)                  \
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
  /* It detaches a client. */                  \
  POINT(ClientObjectsDropped)                  \
  POINT(KeptMemoryPrivatised)                  \
  POINT(OutputSegmentsLeft)                    \
  POINT(ChannelDetached)                       \
  POINT(ChannelDetachedSent)

/// A client or a worker, at its end of a channel.
#define ISOPOOL_CRASH_POINTS_OF_EITHER_END(POINT) \
  /* It returns a lease. */                       \
  POINT(LeaseReturned)                            \
  POINT(LeaseGroupCounted)                        \
  /* It sleeps. */                                \
  POINT(SleepAnnounced)                           \
  POINT(SleepWithdrawn)

/// A supervisor.
#define ISOPOOL_CRASH_POINTS_OF_SUPERVISORS(POINT)   \
  /* It starts. */                                   \
  POINT(SupervisorGuarded)                           \
  POINT(SupervisorListening)                         \
  POINT(ZygoteSpawned)                               \
  POINT(ZygoteSeenReady)                             \
  /* A client connects. */                           \
  POINT(ClientAccepted)                              \
  POINT(ClientWelcomed)                              \
  POINT(PoolJoined)                                  \
  /* A worker starts and serves. */                  \
  POINT(ForkRequestSent)                             \
  POINT(ForkSettled)                                 \
  POINT(WorkerSeenReady)                             \
  POINT(ChannelMemoryMade)                           \
  POINT(WorkerIntroduced)                            \
  POINT(AttachChannelSent)                           \
  POINT(ClientMemoryTold)                            \
  POINT(AttachmentUsable)                            \
  POINT(SpareAssigned)                               \
  /* Packages of clients, and memory for results. */ \
  POINT(PackageHeldSent)                             \
  POINT(PackageForgotten)                            \
  POINT(OutputSegmentMade)                           \
  POINT(OutputSegmentGranted)                        \
  POINT(AddOutputSegmentSent)                        \
  /* Memory goes back to the system. */              \
  POINT(UnmapInputSegmentSent)                       \
  POINT(InputSegmentReleasedSent)                    \
  POINT(UnmapOutputSegmentSent)                      \
  POINT(OutputSegmentClosed)                         \
  /* A worker dies or retires. */                    \
  POINT(DeathSeen)                                   \
  POINT(ReplacementAsked)                            \
  POINT(WorkerReaped)                                \
  POINT(WorkerDiedSent)                              \
  POINT(OrphansSwept)                                \
  POINT(RetireWorkerSent)                            \
  /* Another supervisor takes over the address. */   \
  POINT(SuccessorAsked)                              \
  POINT(ServesSent)                                  \
  POINT(SuccessorSeen)                               \
  POINT(ClientReleased)                              \
  /* A client is paused. */                          \
  POINT(PauseSent)                                   \
  /* A client leaves, or the supervisor ends. */     \
  POINT(DetachChannelSent)                           \
  POINT(AttachmentClosed)                            \
  POINT(ChannelClosedSent)                           \
  POINT(ClientForgotten)                             \
  POINT(DrainSent)                                   \
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
  POINT(SuccessorSpawned)                        \
  POINT(SuccessorAnnounced)                      \
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

/// The kind of process that reaches a crash point.
enum class CrashPointOwner { kClient, kWorker, kEitherEnd, kSupervisor, kZygote, kGuardian };
CrashPointOwner crashPointOwner(CrashPoint point);

/// The name of a crash point in tests and environment variables (`submissionTailStored`).
std::string_view crashPointName(CrashPoint point);
/// The crash point with this name; nullopt if there is none.
std::optional<CrashPoint> crashPointFromName(std::string_view name);

/// Arms `point` in this process: when it is reached for the nth time (from 1), the process kills
/// itself. Replaces the point that was armed before.
void armCrashPoint(CrashPoint point, uint32_t nth);

/// Arms the crash point that the environment variable requests, as NAME or NAME:NTH or as the path
/// (from '/') of a file with one of these. Only the first process that reads the file is armed: it
/// renames the file to PATH.PID, and to PATH.PID.reached before it kills itself. Returns false if
/// the request does not name a crash point, true if there is none.
bool armCrashPointFromEnvironment(const char* variable);

/// The armed point, 0 if there is none. Only armCrashPoint() writes it.
extern std::atomic<uint32_t> armedCrashPoint;
/// Counts down and kills the process at the nth time. For reachCrashPoint().
void reachArmedCrashPoint() noexcept;

/// Marks a place where the process may die. Costs one comparison with a word that is not written
/// meanwhile, so it is part of the shipped code: the code that the tests kill is what users run.
/// Any thread may call it.
inline void reachCrashPoint(CrashPoint point) noexcept {
  if (armedCrashPoint.load(std::memory_order_relaxed) == static_cast<uint32_t>(point))
      [[unlikely]] {
    reachArmedCrashPoint();
  }
}

}  // namespace isopool::ipc
