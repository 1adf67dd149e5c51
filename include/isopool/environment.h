// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "isopool/export.h"

namespace isopool {

class Interpreter;

/// Prepares the Python interpreters of a manager's workers. Programs derive from it;
/// NoopEnvironment and PathEnvironment are ready to use. The interpreter is the one that isopool
/// was built with; its packages are those of the Python that ISOPOOL_PYTHON_EXECUTABLE names, if
/// that is set.
///
/// The manager shares ownership: the environment lives at least as long as the manager. Managers
/// share a private supervisor only if they have the same environment object, or two environments of
/// isopool's own classes that are equal.
class ISOPOOL_EXPORT Environment {
 public:
  Environment() = default;
  /// `pythonAppDir` exists for programs that were written for torch::deploy. isopool does not use
  /// the folder.
  explicit Environment(const std::string& pythonAppDir) : pythonAppDir_(pythonAppDir) {}
  virtual ~Environment() = default;

  /// Folders that every worker appends to sys.path before it runs any other code. Read once, when
  /// the manager is constructed.
  virtual const std::vector<std::string>& getExtraPythonPaths() { return extraPythonPaths_; }

  /// Called once for each worker process, replacements of dead workers included, before the worker
  /// runs its first call. The manager's constructor calls it for the first workers; later the
  /// thread whose call comes first calls it, and other threads that need this worker wait. May
  /// acquire sessions of `interp` and use them. An exception goes to the caller of that constructor
  /// or call, and the worker's next user calls this function again.
  virtual void configureInterpreter(Interpreter* interp) = 0;

 protected:
  std::vector<std::string> extraPythonPaths_;
  std::string pythonAppDir_;
};

}  // namespace isopool
