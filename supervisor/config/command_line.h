// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <variant>

#include "base/settings/setting_table.h"

namespace isopool::supervisor {

/// The program ends instead of running: the text to print and the exit code. Code 0 is an answer to
/// --help and the like, which goes to the output stream; any other code is an error.
struct OptionsRefused {
  std::string text;  ///< one line for an error, several for --help
  int exitCode = 0;
};

/// The parsed flags of isopoold: those outside the table of settings, and the texts, not yet
/// interpreted, of those in the table.
struct CommandLine {
  bool privatePool = false;    ///< --private
  bool collectOutput = false;  ///< --collect-output
  int controlFd = 3;           ///< of a private supervisor
  int lifelineFd = 4;          ///< of a private supervisor
  std::string file;            ///< --config or ISOPOOL_CONFIG; empty: none
  std::map<const base::Setting*, std::string> flags;
  /// --default: values of a program's PoolOptions, in place of the built-in defaults.
  std::map<const base::Setting*, std::string> defaults;
};

/// What isopoold does with the settings: runs, or prints something about them and ends.
enum class Answer { kServe, kCheck, kShow, kShowJson };

struct CommandLineRequest {
  CommandLine commandLine;
  Answer answer = Answer::kServe;
};

/// Parses the flags without interpreting the values of settings. Returns OptionsRefused with exit
/// code 0 for --help and for what is printed from the table of settings alone (an example file),
/// with exit code 2 for a flag that is wrong. Reads the environment variable ISOPOOL_CONFIG; opens
/// no file and prints nothing.
std::variant<CommandLineRequest, OptionsRefused> parseCommandLine(int argc,
                                                                  const char* const* argv);

}  // namespace isopool::supervisor
