// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/channel/operation.h"

namespace isopool::ipc {

/// True for the requests by which a client prepares a worker for calls, or finds out whether it can
/// serve them. None of them is a user's call: a worker that dies of its first call has completed
/// them, so they do not count as completed calls. If the deadline of one passes, the worker is not
/// killed: the next call can use what it makes.
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
