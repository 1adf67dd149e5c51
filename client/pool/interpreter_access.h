// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "isopool/interpreter.h"

namespace isopool {

/// Gives the library access to private members of Interpreter: its constructor and its slot.
class InterpreterAccess {
 public:
  static Interpreter make(std::shared_ptr<WorkerSlot> slot) { return Interpreter(std::move(slot)); }
  static const std::shared_ptr<WorkerSlot>& slot(const Interpreter& interpreter) {
    return interpreter.slot_;
  }
};

}  // namespace isopool
