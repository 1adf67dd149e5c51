// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

#include "ipc/crash_point.h"

namespace isopool::tests {

/// The operation during which a process died.
enum class Operation : uint32_t {
  kStart,
  kOpen,
  kLoad,
  kInlineCall,
  kCopiedCall,
  kSharedCall,
  kKeptCall,
  kLargeResult,
  kTrim,
  kLongWords,
  kSession,
  kRecall,
  kWorkerDeath,
  kPackage,
  kRelief,
  kLeave,
  kDrain,
  kCount,
};
std::string_view operationName(Operation operation);

/// Records a death at a crash point, which this process or a child of it has seen.
void noteDeath(ipc::CrashPoint point, Operation operation);

}  // namespace isopool::tests
