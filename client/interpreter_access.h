// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "isopool/interpreter.h"

namespace isopool {

/// Makes Interpreters, whose constructor users can't call.
class InterpreterAccess {
 public:
  static Interpreter make(std::shared_ptr<WorkerSlot> slot) { return Interpreter(std::move(slot)); }
  static const std::shared_ptr<WorkerSlot>& slot(const Interpreter& interpreter) {
    return interpreter.slot_;
  }
};

}  // namespace isopool
