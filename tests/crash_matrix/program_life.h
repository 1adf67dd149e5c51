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

/// Where a program's life has come to, for whoever has to say where it ended.
struct LifeProgress {
  std::atomic<Operation> operation{Operation::kStart};
  std::atomic<bool> over{false};
};

/// What a program does with isopool, from a manager's construction to its end, on a pool of one
/// worker. Every answer is compared with what it has to be; each operation begins with a call that
/// leaves a line in a log, so that what ran can be held against what its caller was told. What must
/// not be throws std::runtime_error.
class ProgramLife {
 public:
  using MakeManager = std::function<std::unique_ptr<InterpreterManager>()>;
  ProgramLife(MakeManager makeManager, std::string log, LifeProgress& progress);

  enum class End { kWhole, kSupervisorLost };
  /// All operations, the first to the last.
  End live();

  enum class Outcome { kAnswered, kWorkerLost, kSupervisorLost };
  /// One of them. The loss of the worker or the supervisor is an outcome that is to be told; any
  /// other error is a fault.
  Outcome perform(Operation operation);
  /// What the program was told when it last lost its worker or its supervisor.
  const std::string& loss() const { return loss_; }

  /// The process of the pool's worker, once one answers.
  pid_t worker();
  InterpreterManager& manager() { return *manager_; }
  const ReplicatedObj& object() const { return object_; }

  /// Throws unless each call that was answered ran once, each that was lost after its start at most
  /// once, and each that had not started never.
  void checkLog() const;

 private:
  enum class Told { kNothing, kAnswered, kMayHaveRun, kNeverRan };

  void act(Operation operation);
  void leaveALine();
  void callBehindAStep(const std::function<void(const std::string& gate)>& meanwhile);
  void recall();
  void loseAWorker();
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
