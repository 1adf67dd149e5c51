// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace isopool::cli {

/// What the command line asks for. Each command has some of these.
struct Options {
  std::string socket;
  bool json = false;
  double interval = 1;  ///< seconds
  uint64_t count = 0;
  bool ready = false;
  std::string listen;
  std::string target;  ///< of an action
  bool all = false;
  double wait = 0;                 ///< seconds
  double time = 0;                 ///< seconds: --for
  std::string file;                ///< of a model
  std::string pickle;              ///< in that file: MODULE/RESOURCE
  std::string sandbox = "strict";  ///< of the worker that loads that file
};

/// Declares the commands, their options and the texts of --help. Parsing fills `options`, which
/// must outlive `app`.
void declareCommands(CLI::App& app, Options& options);

/// Empty, or the error message for a command line whose command is none of `app`: such a word may
/// stand beside --help.
std::string unknownCommand(const CLI::App& app, int argc, const char* const* argv);

}  // namespace isopool::cli
