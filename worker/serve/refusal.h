// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

#include "ipc/channel/operation.h"

namespace isopool::worker {

/// Why isopool itself can't do what a call asks. Thrown inside the worker, answered as kRefused.
class Refusal : public std::runtime_error {
 public:
  Refusal(ipc::RefusalKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  ipc::RefusalKind kind() const { return kind_; }

 private:
  ipc::RefusalKind kind_;
};

}  // namespace isopool::worker
