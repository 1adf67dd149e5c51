// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isopool/isopool.h"
#include "tools/worker_module.h"

namespace tools {

/// One life of the worker that runs the user's Python as __main__. One thread. Every member throws
/// isopool::WorkerLost if the worker dies; a new ScriptWorker then has a fresh one.
class ScriptWorker {
 public:
  /// `arguments` becomes sys.argv. The worker gets this program's working folder.
  ScriptWorker(isopool::InterpreterManager& manager, const std::vector<std::string>& arguments);

  /// Run a program to its end, uncaught exceptions included, and return its exit code.
  int runFile(const std::string& path);
  int runText(const std::string& text);

  struct Taken {
    bool unfinished = false;      ///< the statement needs more lines
    std::optional<int> exitCode;  ///< it raised SystemExit
  };
  /// The next line of a prompt's session.
  Taken take(const std::string& line);
  /// Drops the lines of an unfinished statement.
  void forget();
  /// Joins the session's threads and runs what it left for the end.
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
