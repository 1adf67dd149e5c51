// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
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
  // A client consumes a completion.
  kCompletionHeadStored,
  // A worker consumes a call.
  kSubmissionCopied,
  kSubmissionHeadStored,
  kStartedStored,
  kCallReturned,
  // A worker publishes a result.
  kResultExported,
  kKeptBlockPrivatised,
  kCompletionSlotWritten,
  kCompletionTailStored,
  kCompletionWoken,
  // Giving back what was borrowed, on either side.
  kLeaseReturned,
  kLeaseGroupCounted,
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
void armCrashPoint(CrashPoint point, uint32_t nth);

/// Arms what `variable` asks for in the environment, as NAME or NAME:NTH. Returns false if it is
/// set and names no crash point.
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
