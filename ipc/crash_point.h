// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace isopool::ipc {

/// Every place where a process may be killed and the others must not notice more than the death:
/// after each store to shared memory, each message, each change of state. A test arms one of them
/// and the process kills itself there (SIGKILL, so nothing is cleaned up).
enum class CrashPoint : uint32_t {
  kNone,
  // A client publishes a call.
  kSubmissionSlotWritten,
  kSubmissionTailStored,
  kSubmissionWoken,
  kRecallStored,
  // A client consumes a completion and gives back what it borrowed.
  kCompletionHeadStored,
  kOutputLeaseReturned,
  // A worker consumes a call.
  kSubmissionCopied,
  kSubmissionHeadStored,
  kStartedStored,
  kCallReturned,
  // A worker publishes a result and gives back what it borrowed.
  kResultExported,
  kKeptBlockPrivatised,
  kInputLeaseReturned,
  kCompletionSlotWritten,
  kCompletionTailStored,
  kCompletionWoken,
  // Sleeping, on either side.
  kSleepAnnounced,
  kSleepWithdrawn,
  // A worker's life.
  kWorkerForked,
  kWorkerReady,
  kChannelMapped,
  kLifeWordHeld,
  kChannelAttached,
  kChannelDetached,
  kOutputSegmentRequested,
  // The supervisor.
  kWorkerIntroduced,
  kSpareAssigned,
  kWorkerReaped,
  kCount,
};

/// The name of a crash point as tests and environment variables spell it (`submissionTailStored`).
std::string_view crashPointName(CrashPoint point);
std::optional<CrashPoint> crashPointFromName(std::string_view name);

/// Arms `point` in this process: the n-th time (from 1) it is reached the process kills itself.
/// Without crash points compiled in (Release) this returns false and arms nothing.
bool armCrashPoint(CrashPoint point, uint32_t nth);

/// Arms what `variable` asks for in the environment, as NAME or NAME:NTH. Returns false if it is
/// set and names no crash point, or if crash points are not compiled in.
bool armCrashPointFromEnvironment(const char* variable);

#if ISOPOOL_CRASH_POINTS
void reachCrashPoint(CrashPoint point);
#else
inline void reachCrashPoint(CrashPoint) {}
#endif

}  // namespace isopool::ipc
