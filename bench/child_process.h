// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace bench {

/// A program that a benchmark starts. It dies with the benchmark, and at the end of this object.
/// For one thread, the one that started it, which must live as long as the program.
class ChildProcess {
 public:
  /// Starts the program `words[0]` with the other words as arguments, its standard output in the
  /// file `output`. Throws std::runtime_error if no process can be started.
  ChildProcess(const std::vector<std::string>& words, const std::string& output);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Sends the signal, continues the program if it is stopped, and waits for its end.
  void end(int number);
  /// Whether the program still runs; a program that has ended by itself is reaped.
  bool runs();

 private:
  pid_t pid_ = -1;
};

}  // namespace bench
