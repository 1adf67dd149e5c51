// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>
#include <termios.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace isopool::tests {

using std::chrono::milliseconds;

struct CommandOutcome {
  int exitCode = -1;  ///< -1 if the command did not exit
  std::string output;
  std::string errors;
  milliseconds took{0};
};

/// The command `isopool` with its output in pipes. The destructor kills it. Every wait ends after
/// 10 s.
class RunningCommand {
 public:
  /// `variables` win over the test's own environment, in which ISOPOOL_SOCKET counts as empty.
  explicit RunningCommand(std::vector<std::string> arguments,
                          std::vector<std::string> variables = {},
                          const std::string& program = ISOPOOL);
  ~RunningCommand();
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  /// The next line of output, without its line end; nothing if the output has ended or no line
  /// comes in time.
  std::optional<std::string> nextLine();
  void signal(int number) const;
  /// Waits for the end. The outcome contains the output after the last line that
  /// nextLine() returned.
  CommandOutcome finish();

 private:
  bool readSome(std::chrono::steady_clock::time_point deadline);

  const std::chrono::steady_clock::time_point startedAt_;
  pid_t processId_ = -1;
  base::Fd output_;
  base::Fd errors_;
  std::string outputText_;
  std::string errorText_;
};

CommandOutcome runCommand(std::vector<std::string> arguments,
                          std::vector<std::string> variables = {});

/// The same as another user of the system, from a copy of the program in a folder that this user
/// can read: the build folder may lie below a home folder of mode 0700. Needs root.
CommandOutcome runCommandAs(uid_t user, std::vector<std::string> arguments);

/// The command on a terminal of its own, of 24 rows and 80 columns.
class CommandOnTerminal {
 public:
  explicit CommandOnTerminal(std::vector<std::string> arguments,
                             std::vector<std::string> variables = {});
  ~CommandOnTerminal();
  CommandOnTerminal(const CommandOnTerminal&) = delete;
  CommandOnTerminal& operator=(const CommandOnTerminal&) = delete;

  void type(const std::string& keys);
  void resize(unsigned short rows, unsigned short columns);
  void signal(int number) const;
  /// Reads until the output since the last forget() contains the text; false if it does not
  /// in time.
  bool waitForText(const std::string& text);
  void forget() { text_.clear(); }
  const std::string& text() const { return text_; }
  /// Waits until the command is stopped.
  bool waitUntilStopped();
  /// Waits for the end; returns the exit code, or -1.
  int finish();
  /// True if the terminal's settings are the same as before the command.
  bool terminalIsAsBefore() const;

 private:
  bool readSome(std::chrono::steady_clock::time_point deadline);

  pid_t processId_ = -1;
  base::Fd ours_;
  base::Fd theirs_;  ///< keeps the terminal open after the command's end
  termios before_{};
  std::string text_;
};

/// The result of a Python expression as text. In the expression, `value` is the value of the JSON
/// text. Fails the test if the text is not JSON.
std::string inJson(const std::string& json, const std::string& expression);

}  // namespace isopool::tests
