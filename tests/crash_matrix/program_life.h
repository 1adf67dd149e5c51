// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isopool/isopool.h"
#include "tests/crash_matrix/deaths.h"

namespace isopool::tests {

/// The progress of a program's life, in memory that the test reads to find where the life ended.
struct LifeProgress {
  std::atomic<Operation> operation{Operation::kStart};
  std::atomic<bool> over{false};
};

/// What a program does with isopool, from the construction of a manager to its destruction, on a
/// pool of one worker. Every answer is compared with the expected one. Most operations begin with a
/// call that writes a line to a log, so that the calls that ran can be compared with the outcomes
/// that the caller received. Throws std::runtime_error at any violation. For one thread.
class ProgramLife {
 public:
  using MakeManager = std::function<std::unique_ptr<InterpreterManager>()>;
  ProgramLife(MakeManager makeManager, std::string log, LifeProgress& progress);

  enum class End { kWhole, kSupervisorLost };
  /// Performs all operations in order, until the end or the loss of the supervisor.
  End live();

  enum class Outcome { kAnswered, kWorkerLost, kSupervisorLost };
  /// Performs one operation. The loss of the worker or of the supervisor is an outcome; any other
  /// error throws.
  Outcome perform(Operation operation);
  /// The error message of the last loss of the worker or the supervisor.
  const std::string& loss() const { return loss_; }

  /// The process id of the pool's worker; waits for its answer.
  pid_t worker();
  InterpreterManager& manager() { return *manager_; }
  const ReplicatedObj& object() const { return object_; }

  /// Throws unless each answered call ran once, each call that was lost after its start at most
  /// once, and each call that had not started never.
  void checkLog() const;

 private:
  enum class Told { kNothing, kAnswered, kMayHaveRun, kNeverRan };

  void act(Operation operation);
  void leaveALine();
  void callBehindAStep(const std::function<void(const std::string& gate)>& meanwhile);
  void recall();
  void loseAWorker();
  void trim();
  void usePackage();
  void leave();

  const MakeManager makeManager_;
  const std::string log_;
  LifeProgress& progress_;
  std::unique_ptr<InterpreterManager> manager_;
  ReplicatedObj object_;
  int64_t calls_ = 0;
  int gates_ = 0;
  std::map<int64_t, Told> told_;
  std::string loss_;
};

/// The operations of live(), in its order.
const std::vector<Operation>& lifeOperations();

}  // namespace isopool::tests
