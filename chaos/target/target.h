// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "chaos/oracle/attack_log.h"
#include "chaos/oracle/findings.h"
#include "chaos/oracle/outcomes.h"
#include "chaos/target/proc.h"
#include "chaos/target/spawned.h"
#include "testing/process_mark.h"

namespace chaos {

enum class Role { kProgram, kGuardian, kSupervisor, kZygote, kWorker, kOther };
const char* nameOf(Role role);

struct Member {
  ProcessId id;
  Role role = Role::kOther;
};

/// Where everything is that a target is made of.
struct Installation {
  std::string program;     ///< isopool_chaos_program
  std::string supervisor;  ///< isopoold
  std::string plainWorker;
  std::string package;
  std::string clockLibrary;
  std::string folder;  ///< for histories and logs
};

struct TargetPlan {
  std::string name;
  bool plain = true;
  bool shared = false;
  int programs = 1;
  int workers = 2;
  uint64_t seed = 1;
  std::string fault;  ///< that its first program commits
};

/// What is attacked: client programs and the supervisor and workers that serve them, a private
/// supervisor of each program or a shared one of all. What dies is started again. One thread at a
/// time.
class Target {
 public:
  Target(TargetPlan plan, const Installation& installation, Findings& findings);
  ~Target();
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  const TargetPlan& plan() const { return plan_; }
  AttackLog& attacks() { return attacks_; }
  /// The clock that all of its processes see is so much ahead of the true one.
  void setClockAhead(std::chrono::milliseconds ahead);

  /// All of its processes that are alive.
  std::vector<Member> members() const;
  std::vector<pid_t> living(Role role) const;
  /// False of one that has only got the number of one that it had.
  bool owns(pid_t pid) const;
  /// Starts programs and a shared supervisor that are dead anew.
  void revive();
  /// Time that its processes spent stopped counts for no call.
  void excuse(std::chrono::milliseconds stopped) { excused_ += stopped; }

  /// Has all callers rest, judges their histories, then who is there and what they hold; lets the
  /// callers go on.
  void takeStock();
  /// The same for the last time: ends everything, and nothing may be left.
  void end();

  uint64_t calls() const;
  uint64_t selfInflictedDeaths() const;
  uint64_t outcomes(Outcome outcome) const;
  ManagerCounts managers(RecordFlag act) const;
  std::chrono::milliseconds latest() const;

 private:
  struct Program {
    std::unique_ptr<Spawned> process;
    std::unique_ptr<Outcomes> outcomes;
    std::string name;
  };

  std::vector<std::string> variables() const;
  void startSupervisor();
  void noteWhetherItServes();
  void startProgram();
  void checkBooks(Program& program);
  void checkEnd(const std::string& who, pid_t pid, std::optional<int> status, const char* log);
  std::string notAttached(const std::vector<Member>& members) const;
  static std::string unreaped(const std::vector<Member>& members);
  bool waitUntilComplete();
  uint64_t stockBytes() const;
  void checkHoldings();
  std::vector<pid_t> marked() const;

  const TargetPlan plan_;
  const Installation installation_;
  Findings& findings_;
  AttackLog attacks_;
  isopool::tests::ProcessMark mark_;
  std::string folder_;
  std::unique_ptr<Spawned> supervisor_;
  AttackLog::Time lastServed_;  ///< when a shared supervisor was last seen to have its socket
  std::vector<Program> programs_;
  std::vector<Program> dead_;  ///< whose histories are judged with the others' and then kept
  int lives_ = 0;
  std::chrono::milliseconds excused_{0};
  struct Baseline {
    std::map<std::string, size_t> descriptors;  ///< of each kind
    uint64_t ownBytes;
  };
  std::map<ProcessId, Baseline> baselines_;
  static std::atomic<uint64_t> nextNumber_;
};

}  // namespace chaos
