// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/channel/operation.h"

namespace isopool::ipc {

/// What a client asks of every worker before it uses it: none of it is a user's call. A worker that
/// dies of its first call has done this much.
constexpr bool isPreparation(Operation operation) {
  switch (operation) {
    case Operation::kPing:
    case Operation::kAssumeSlot:
    case Operation::kExtendPath:
    case Operation::kRegisterModule:
    case Operation::kFindModules:
    case Operation::kDefineObject:
    case Operation::kDefineMovable:
    case Operation::kDefineModel:
      return true;
    default:
      return false;
  }
}

}  // namespace isopool::ipc
