// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// The control messages, which report rare events between client, supervisor, zygote and worker.
/// Each is one msgpack array in one frame (ipc/control/frame.h), with the descriptors that its
/// comment lists, in that order. Fields may be added only at an array's end, and only together with
/// a new kProtocolVersion. The messages are in client_messages.h, operator_messages.h,
/// zygote_messages.h, worker_messages.h and guardian_messages.h, by the process at the supervisor's
/// other end.
namespace isopool::ipc {

inline constexpr uint32_t kProtocolVersion = 5;
/// The oldest version that this build supports. Both sides send their range; the supervisor chooses
/// the highest version that both support.
inline constexpr uint32_t kOldestProtocolVersion = 3;

/// The first version in which segments are retired: RetireInputSegment, UnmapOutputSegment,
/// TrimMemory.
inline constexpr uint32_t kRetiresSegments = 5;

enum class MessageType : uint32_t {
  // client -> supervisor
  kHello = 1,
  kOpenPool,
  kClosePool,
  kDeclareInputSegment,
  kLoadPackage,
  kUnloadPackage,
  kChannelMapped,
  kReportDeath,
  kRequestStatistics,
  kConfirmPackage,
  kReportOverdue,
  kWorkerReleased,
  kAcknowledgeDrain,
  kRequestReport,
  kRequestSettings,
  kReportCalls,
  kRequestAction,
  kRetireInputSegment,
  kOutputSegmentUnmapped,
  kTrimMemory,
  // supervisor -> client
  kWelcome = 100,
  kIntroduceWorker,
  kAssignWorker,
  kWorkerDied,
  kSlotQuarantined,
  kGrantOutputSegment,
  kFailure,
  kStatistics,
  kPackageHeld,
  kRetireWorker,
  kChannelClosed,
  kDrain,
  kReport,
  kCallTimeOver,
  kSettingsInForce,
  kActionDone,
  kInputSegmentReleased,
  kUnmapOutputSegment,
  kPauseCalls,
  // supervisor -> zygote
  kForkWorker = 200,
  // zygote -> supervisor
  kZygoteReady = 300,
  kZygoteFailed,
  kWorkerForked,
  kForkFailed,
  // supervisor -> worker
  kAttachChannel = 400,
  kDetachChannel,
  kMapInputSegment,
  kMapPackage,
  kUnmapPackage,
  kAddOutputSegment,
  kRefuseOutputSegment,
  kRefuseInputSegment,
  kSetTitle,
  kUnmapInputSegment,
  kTrimOutput,
  // worker -> supervisor
  kWorkerReady = 500,
  kChannelAttached,
  kRequestOutputSegment,
  kChannelDetached,
  kForbiddenAct,
  kInputSegmentUnmapped,
  kRetireOutputSegment,
  kCodeLeft,
  // supervisor -> its guardian
  kStartSuccessor = 600,
  kServes,
  // guardian -> supervisor
  kSuccessorServes = 700,
  kSuccessorEnded,
};

}  // namespace isopool::ipc
