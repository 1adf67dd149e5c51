// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "isopool/isopool.h"

namespace tools {

/// The names that a module of ours has in one worker, which need not be importable there. Lives as
/// long as the worker; throws what Obj throws.
class WorkerModule {
 public:
  /// Runs `source` in the session's worker. `name` is what tracebacks and __name__ say.
  WorkerModule(isopool::InterpreterSession& session, const std::string& name,
               const std::string& source);

  isopool::Obj get(const char* name) const;

 private:
  isopool::Obj names_;
};

}  // namespace tools
