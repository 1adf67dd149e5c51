// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <variant>

#include "base/settings/setting_table.h"

namespace isopool::supervisor {

/// Not options but what to print instead, and the exit code that goes with it.
struct OptionsRefused {
  std::string text;  ///< one line for an error, more for --help
  int exitCode = 0;
};

/// What isopoold's flags say: beyond the table of settings, and the texts of those in it.
struct CommandLine {
  bool privatePool = false;
  int controlFd = 3;
  int lifelineFd = 4;
  std::string file;  ///< --config or ISOPOOL_CONFIG; empty: none
  std::map<const base::Setting*, std::string> flags;
};

/// What is to be done with the settings.
enum class Answer { kServe, kCheck, kShow, kShowJson };

struct CommandLineRequest {
  CommandLine commandLine;
  Answer answer = Answer::kServe;
};

/// Knows the flags, but not what their values mean. Answers --help and what is written from the
/// table alone by a refusal with exit code 0.
std::variant<CommandLineRequest, OptionsRefused> parseCommandLine(int argc,
                                                                  const char* const* argv);

}  // namespace isopool::supervisor
