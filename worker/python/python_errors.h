// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace isopool::worker {

/// A Python exception in words, as it travels to the caller.
struct PythonError {
  bool exitAsked = false;  ///< SystemExit: `message` says with which code
  std::string type;        ///< "ValueError", "package.module.Name"
  std::string message;     ///< str() of it
  std::string traceback;   ///< as Python prints it
  std::string
      formatted;  ///< as pybind11 words it: "Type: message\n\nAt:\n  file(line): function\n"
  bool memoryShort = false;               ///< it, or what it came from, is that there was no memory
  std::vector<std::string> refusedFiles;  ///< that the system let nobody use, of both
};

/// Describes and clears the current Python error, and with it the frames that it kept alive. Never
/// fails: an exception that can't be described is described as that. With the GIL held.
PythonError takePythonError();

}  // namespace isopool::worker
