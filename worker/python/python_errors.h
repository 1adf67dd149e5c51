// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace isopool::worker {

/// A Python exception as text, for the answer to the caller.
struct PythonError {
  bool exitAsked = false;  ///< SystemExit: `message` has the exit code
  std::string type;        ///< "ValueError", "package.module.Name"
  std::string message;     ///< str() of it
  std::string traceback;   ///< as Python prints it
  std::string
      formatted;  ///< as pybind11 formats it: "Type: message\n\nAt:\n  file(line): function\n"
  std::string pickled;                    ///< empty if it was not asked for or can't be pickled
  bool memoryShort = false;               ///< it or one of its causes is a lack of memory
  std::vector<std::string> refusedFiles;  ///< to which it or a cause was denied access

  /// Appends lines of isopool's own to the three texts.
  void append(const std::string& lines);
  /// If a module was not found, appends which interpreter should have it. With the GIL held.
  void explainMissingModule();
};

/// Describes and clears the current Python error, which releases the frames that it kept alive.
/// Never fails: if the exception can't be described, the result says so. May run user code. With
/// the GIL held.
PythonError takePythonError(bool withPickle = false);

/// The code with which Python ends a process if nothing handles the current Python error, after it
/// has printed what Python prints then. Clears the error. May run user code. With the GIL held.
int takeExitCode();

}  // namespace isopool::worker
