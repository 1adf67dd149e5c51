// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "isopool/isopool.h"
#include "testing/process_mark.h"

namespace isopool::tests {

using std::chrono::milliseconds;
using Named = std::unordered_map<std::string, c10::IValue>;

inline constexpr milliseconds kPatience(10'000);

/// Checks the condition every millisecond. False if it does not become true in time.
[[nodiscard]] bool waitUntil(const std::function<bool()>& condition,
                             milliseconds patience = kPatience);

/// A folder for this run's files, removed at its end.
const std::filesystem::path& testFolder();
/// The path of a file that make_packages.py makes under this name: a package, or a file that is not
/// a valid package.
std::string packagePath(const std::string& name = "subject.pt");
/// Appends bytes to an archive, which its readers ignore: its contents stay the same, and no other
/// file has its bytes. The library would use an open file with the same bytes in its place.
void appendToArchive(const std::filesystem::path& archive);

/// Calls methods of a Subject object (subject.py) by name. Copies share the object.
class Subject {
 public:
  explicit Subject(InterpreterManager& manager);
  explicit Subject(ReplicatedObj object) : object_(std::move(object)) {}

  at::IValue ask(const std::string& method, std::vector<at::IValue> arguments = {}) const;
  at::IValue ask(const std::string& method, std::vector<at::IValue> arguments,
                 const CallOptions& options) const;
  at::Tensor tensor(const std::string& method, std::vector<at::IValue> arguments = {}) const {
    return ask(method, std::move(arguments)).toTensor();
  }
  int64_t number(const std::string& method, std::vector<at::IValue> arguments = {}) const {
    return ask(method, std::move(arguments)).toInt();
  }
  std::string text(const std::string& method, std::vector<at::IValue> arguments = {}) const {
    return ask(method, std::move(arguments)).toStringRef();
  }
  const ReplicatedObj& object() const { return object_; }

 private:
  ReplicatedObj object_;
};

/// A pool of two workers for all tests of this run that leave its processes alive.
InterpreterManager& sharedManager();
const Subject& sharedSubject();

/// A place at which a call in a worker waits until the test opens it. The test can also wait until
/// the call arrives.
class Gate {
 public:
  Gate();
  /// Arguments of Subject.wait_at.
  std::vector<at::IValue> arguments() const { return {arrived_, open_}; }
  /// Waits until a process has arrived at the gate, and returns its id.
  pid_t arrival() const;
  void open() const;

 private:
  std::string arrived_;
  std::string open_;
};

/// Sets a variable of this process's environment for the lifetime of the object.
class ScopedVariable {
 public:
  explicit ScopedVariable(const std::string& assignment);
  ~ScopedVariable();
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> previous_;
};

/// Finds the processes of one supervisor by their mark.
class ProcessTree {
 public:
  explicit ProcessTree(const ProcessMark& mark) : mark_(mark) {}
  pid_t supervisor() const;
  std::vector<pid_t> supervisors() const { return named("isopoold"); }
  /// The supervisor's parent, see supervisor/README.md.
  pid_t guardian() const;
  /// The first process with Python. The other ones are forks of it.
  pid_t zygote() const;
  bool goneWithin(milliseconds patience) const { return mark_.waitUntilNoneIsLeft(patience); }
  std::vector<pid_t> all() const { return mark_.processes(); }

 private:
  std::vector<pid_t> named(const std::string& name) const;

  const ProcessMark& mark_;
};

/// The bytes of a process's memory that /proc/PID/smaps_rollup reports under this name, for example
/// "AnonHugePages".
uint64_t memoryOf(pid_t process, const std::string& name);

/// A manager with a supervisor of its own: its environment contains a unique mark, so no other
/// manager shares the supervisor. It may contain more variables. The destructor expects that none
/// of its processes is left.
class OwnPool {
 public:
  explicit OwnPool(size_t workers = 2, const std::vector<std::string>& variables = {});
  ~OwnPool();
  OwnPool(const OwnPool&) = delete;
  OwnPool& operator=(const OwnPool&) = delete;

  InterpreterManager& manager() { return *manager_; }
  const Subject& subject() const { return *subject_; }
  ProcessTree tree() const { return ProcessTree(mark_); }
  pid_t processOf(size_t slot) { return manager_->allInstances()[slot].processId().value_or(-1); }
  /// Ends the manager; results and objects may live on.
  void endManager() { manager_.reset(); }

 private:
  ProcessMark mark_;
  std::unique_ptr<InterpreterManager> manager_;
  std::optional<Subject> subject_;
};

/// A program that runs beside the test: tests/client/program.cc, or another one.
class Program {
 public:
  explicit Program(std::vector<std::string> words, std::vector<std::string> variables = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// The next line of its standard output; nothing if there is none in time.
  std::optional<std::string> readLine(milliseconds patience = milliseconds(60'000));
  /// Closes the pipe to the program's standard input, so that the program reads its end.
  void closeInput() { input_.close(); }
  void kill(int signal) const;
  /// The program's exit status as waitpid() returns it.
  std::optional<int> waitForEnd(milliseconds patience = kPatience);
  ProcessTree tree() const { return ProcessTree(mark_); }
  pid_t pid() const { return pid_; }

 private:
  ProcessMark mark_;
  pid_t pid_ = -1;
  base::Fd input_;
  base::Fd output_;
  std::string unread_;
};

CopyCounters operator-(const CopyCounters& after, const CopyCounters& before);

}  // namespace isopool::tests
