// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

#include "ipc/channel/operation.h"

namespace isopool::worker {

/// The reason why isopool itself refuses a call. Thrown inside the worker and answered as kRefused.
class Refusal : public std::runtime_error {
 public:
  /// `text` is what the caller sees: the object, the cause and, if there is one, the remedy.
  Refusal(ipc::RefusalKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  ipc::RefusalKind kind() const { return kind_; }

 private:
  ipc::RefusalKind kind_;
};

}  // namespace isopool::worker
