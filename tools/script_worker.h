// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isopool/isopool.h"
#include "tools/worker_module.h"

namespace tools {

/// One life of the worker that runs the user's Python as __main__. Not thread-safe. Every member
/// throws isopool::WorkerLost if the worker dies; a new ScriptWorker then uses a new worker.
class ScriptWorker {
 public:
  /// `arguments` becomes sys.argv. The worker changes to this program's working folder.
  ScriptWorker(isopool::InterpreterManager& manager, const std::vector<std::string>& arguments);

  /// Both run a program to its end and return its exit code, also after an uncaught exception.
  int runFile(const std::string& path);
  int runText(const std::string& text);

  struct Taken {
    bool unfinished = false;      ///< the statement needs more lines
    std::optional<int> exitCode;  ///< set if the statement raised SystemExit
  };
  /// Runs the next line of a prompt's session.
  Taken take(const std::string& line);
  /// Drops the lines of an unfinished statement.
  void forget();
  /// Joins the session's threads and runs its exit functions (atexit).
  void end();

  int processId() const { return processId_; }

 private:
  const isopool::Obj& prompt();

  isopool::InterpreterSession session_;
  int processId_;
  WorkerModule runner_;
  std::optional<isopool::Obj> prompt_;
};

}  // namespace tools
