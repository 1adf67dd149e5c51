// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/channel/operation.h"

namespace isopool::ipc {

/// True for the requests that a client sends to every worker before it uses the worker. None of
/// them is a user's call: a worker that dies of its first call has completed them.
constexpr bool isPreparation(Operation operation) {
  switch (operation) {
    case Operation::kPing:
    case Operation::kAssumeSlot:
    case Operation::kExtendPath:
    case Operation::kRegisterModule:
    case Operation::kFindModules:
    case Operation::kDefineObject:
    case Operation::kDefineMovable:
      return true;
    default:
      return false;
  }
}

}  // namespace isopool::ipc
