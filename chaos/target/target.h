// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
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
  /// Its parent is a zygote: it is about to fork a worker, or the zygote has not started yet and
  /// tries what the kernel permits. The parent of a worker is the supervisor.
  bool ofZygote = false;

  bool isWholeWorker() const { return role == Role::kWorker && !ofZygote; }
};

/// The files of which a target is made.
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
  int slowness = 1;   ///< each limit of time is multiplied by this
  std::string fault;  ///< the fault that its first program commits
};

/// A target of attacks: client programs and the supervisor and workers that serve them. Either each
/// program has a private supervisor, or all share one. Dead processes are started again. To be used
/// from one thread at a time.
class Target {
 public:
  Target(TargetPlan plan, const Installation& installation, Findings& findings);
  ~Target();
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  const TargetPlan& plan() const { return plan_; }
  AttackLog& attacks() { return attacks_; }
  /// Sets how much the clock of all its processes is ahead of the true time.
  void setClockAhead(std::chrono::milliseconds ahead);

  /// All living processes of the target.
  std::vector<Member> members() const;
  std::vector<pid_t> living(Role role) const;
  /// False for a process that only has the same number as a former process of the target.
  bool owns(pid_t pid) const;
  /// Restarts dead programs and a dead shared supervisor.
  void revive();
  /// Adds time that its processes were stopped: it does not count as time of a call.
  void excuse(std::chrono::milliseconds stopped) { excused_ += stopped; }

  /// Brings all callers to rest; checks their histories, the processes and what these hold; then
  /// continues the callers.
  void takeStock();
  /// The last check: ends all processes, and nothing may be left.
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

  std::chrono::milliseconds onThisMachine(std::chrono::milliseconds limit) const {
    return limit * plan_.slowness;
  }
  std::vector<std::string> variables() const;
  void startSupervisor();
  void noteWhetherItServes();
  void startProgram();
  void checkBooks(Program& program);
  void checkEnd(const std::string& who, pid_t pid, std::optional<int> status, const char* log);
  /// The inodes of the workers' status pages that each process maps.
  using StatusPages = std::map<pid_t, std::set<uint64_t>>;
  static StatusPages statusPages(const std::vector<Member>& members);
  std::string notAttached(const std::vector<Member>& members, const StatusPages& pages) const;
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
  std::vector<Program> dead_;  ///< their histories are judged with the others', and then kept
  int lives_ = 0;
  std::chrono::milliseconds excused_{0};
  struct Baseline {
    std::map<std::string, size_t> descriptors;  ///< the number of each kind
    uint64_t ownBytes;
  };
  std::map<ProcessId, Baseline> baselines_;
  static std::atomic<uint64_t> nextNumber_;
};

}  // namespace chaos
