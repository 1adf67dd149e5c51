// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace isopool {

class Interpreter;

/// What the Python of a manager's workers is like besides being the Python that isopool was built
/// with. Users derive from it.
class Environment {
 public:
  Environment() = default;
  /// `pythonAppDir` is accepted for programs written for torch::deploy; nothing is created or
  /// removed there.
  explicit Environment(const std::string& pythonAppDir) : pythonAppDir_(pythonAppDir) {}
  virtual ~Environment() = default;

  /// Folders appended to sys.path of every worker before anything else runs there.
  virtual const std::vector<std::string>& getExtraPythonPaths() { return extraPythonPaths_; }

  /// Called for every worker process before its first call, also for each replacement of one that
  /// died, on the thread of that first call. May use the interpreter's sessions.
  virtual void configureInterpreter(Interpreter* interp) = 0;

 protected:
  std::vector<std::string> extraPythonPaths_;
  std::string pythonAppDir_;
};

}  // namespace isopool
