// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>

#include "isopool/export.h"
#include "isopool/interpreter.h"

namespace isopool {

/// The slots of a pool's workers, as InterpreterManager::allInstances() returns them: an
/// at::ArrayRef as in torch::deploy. A copy refers to the same slots, which live as long as their
/// manager. So `const Interpreter& first = manager.allInstances().front();` is right, and the
/// members here tell the compiler, whose -Wdangling-reference (GCC 13 and newer) can't know.
class Interpreters : public at::ArrayRef<Interpreter> {
 public:
  using at::ArrayRef<Interpreter>::ArrayRef;

  ISOPOOL_NO_DANGLING const Interpreter& front() const { return ArrayRef::front(); }
  ISOPOOL_NO_DANGLING const Interpreter& back() const { return ArrayRef::back(); }
  ISOPOOL_NO_DANGLING const Interpreter& operator[](size_t index) const {
    return ArrayRef::operator[](index);
  }
  /// Throws c10::Error if there is no such slot.
  ISOPOOL_NO_DANGLING const Interpreter& at(size_t index) const { return ArrayRef::at(index); }
};

}  // namespace isopool
