// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "ipc/channel/operation.h"
#include "worker/serve/operations/handlers.h"

namespace isopool::worker {

/// What the worker must know about an operation besides its handler. Clients must know, too, which
/// operations are preparations: so that is ipc::isPreparation().
struct OperationTraits {
  /// It prepares the worker and runs no code of the client.
  bool setsUp = false;
  /// It runs a model: the sandbox must have reached its second stage, see Sandbox::beginCalls().
  bool runsModel = false;
  /// It makes an object that the client keeps in the worker: it is refused before it starts if the
  /// client's handles have reached their memory limit.
  bool needsHandleRoom = false;
  /// Tensors of the call that are still alive after it belong to the model, see
  /// RunningCall::settleKept().
  bool modelKeepsTensors = false;
};

struct OperationEntry {
  ipc::Operation operation;
  operations::Handler* handler;
  OperationTraits traits = {};
};

namespace operations {

/// All operations of the protocol; the index is the operation's number.
inline constexpr OperationEntry kTable[] = {
    {ipc::Operation{0}, refuseUnknown},
    {ipc::Operation::kPing, ping, {.setsUp = true}},
    {ipc::Operation::kAssumeSlot, assumeSlot, {.setsUp = true}},
    {ipc::Operation::kFindModules, findModules, {.setsUp = true}},
    {ipc::Operation::kDefineObject, defineObject},
    {ipc::Operation::kForgetObject, forgetObject},
    {ipc::Operation::kCallObject, callObject, {.runsModel = true, .modelKeepsTensors = true}},
    {ipc::Operation::kObjectHasAttribute, hasAttribute},
    {ipc::Operation::kObjectHandle, objectHandle},
    {ipc::Operation::kPackageHandle, packageHandle},
    {ipc::Operation::kGlobal, global},
    {ipc::Operation::kFromValue, fromValue, {.needsHandleRoom = true}},
    {ipc::Operation::kAttribute, attribute, {.needsHandleRoom = true}},
    {ipc::Operation::kHasAttribute, hasAttribute},
    {ipc::Operation::kCallHandle, callHandle, {.runsModel = true, .needsHandleRoom = true}},
    {ipc::Operation::kToValue, toValue},
    {ipc::Operation::kReleaseHandles, releaseHandles},
    {ipc::Operation::kExtendPath, extendPath, {.setsUp = true}},
    {ipc::Operation::kRegisterModule, registerModule, {.setsUp = true}},
    {ipc::Operation::kPickle, pickle},
    {ipc::Operation::kFillMovable, fillMovable},
    {ipc::Operation::kDefineMovable, defineMovable},
    {ipc::Operation::kNext, next, {.runsModel = true}},
    {ipc::Operation::kCallMethod, callMethod, {.runsModel = true, .modelKeepsTensors = true}},
};

static_assert(
    [] {
      if (std::size(kTable) != static_cast<size_t>(ipc::kLastOperation) + 1) return false;
      for (size_t i = 0; i < std::size(kTable); ++i) {
        if (static_cast<size_t>(kTable[i].operation) != i) return false;
      }
      return true;
    }(),
    "the table has each operation, in the order of their numbers");

}  // namespace operations

/// The entry of the operation with this number. The number is untrusted: the client wrote it. If no
/// operation has it, the entry's handler refuses the call.
constexpr const OperationEntry& operationOf(uint32_t number) {
  return operations::kTable[number < std::size(operations::kTable) ? number : 0];
}

}  // namespace isopool::worker
