// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "isopool/isopool.h"

namespace tools {

/// A Python module of a tool, run in one worker, where it need not be importable. Usable while the
/// worker lives; throws what Obj throws.
class WorkerModule {
 public:
  /// Runs `source` in the session's worker. `name` is its __name__ and its name in tracebacks.
  WorkerModule(isopool::InterpreterSession& session, const std::string& name,
               const std::string& source);

  /// The object with this name in the module.
  isopool::Obj get(const char* name) const;

 private:
  isopool::Obj names_;
};

}  // namespace tools
