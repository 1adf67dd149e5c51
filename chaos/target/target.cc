// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/target/target.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>

#include "chaos/target/wait_until.h"

namespace chaos {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Attaching and calls without a deadline wait for a new zygote: its import of torch takes half a
// minute on busy processors. Longer than outcomes.cc allows for such a call.
constexpr milliseconds kPatienceForRest(75'000);
// The same if a fault is planted, to see that chaos finds a call that hangs.
constexpr milliseconds kPatienceWithFault(15'000);
// From the moment when a dying process closes its pipe until it can be reaped.
constexpr milliseconds kPatienceForExit(1'000);
// How long before its visible end a supervisor may have announced the end to a program.
constexpr milliseconds kBeforeItIsSeen(1000);
bool listens(const std::string& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, address.c_str(), sizeof name.sun_path - 1);
  const isopool::base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
}

std::string describeEnd(int status) {
  if (WIFSIGNALED(status)) return "died by signal " + std::to_string(WTERMSIG(status));
  return "exited with " + std::to_string(WEXITSTATUS(status));
}

bool isWorkerProgram(const ProcessStatus& status) {
  return status.name == "isopool-worker" || status.name == "isopool_plain_w";
}

// The last line of a process's log.
std::string lastLine(const std::string& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) last = line;
  return last;
}

// The end of a dead program's log, which may contain the cause.
std::string endOf(const std::string& log) {
  constexpr size_t kLines = 30;
  std::ifstream file(log);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > kLines) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text.append("\n    ").append(line);
  return text;
}

}  // namespace

std::atomic<uint64_t> Target::nextNumber_{0};

const char* nameOf(Role role) {
  switch (role) {
    case Role::kProgram:
      return "program";
    case Role::kGuardian:
      return "guardian";
    case Role::kSupervisor:
      return "supervisor";
    case Role::kZygote:
      return "zygote";
    case Role::kWorker:
      return "worker";
    case Role::kOther:
      break;
  }
  return "other";
}

Target::Target(TargetPlan plan, const Installation& installation, Findings& findings)
    : plan_(std::move(plan)),
      installation_(installation),
      findings_(findings),
      folder_(installation.folder + "/" + plan_.name) {
  std::filesystem::create_directories(folder_);
  setClockAhead(milliseconds(0));
  if (plan_.shared) {
    startSupervisor();
    // Nothing has attacked it yet. A setting that it refuses, for example, would end each later
    // one.
    if (!supervisor_->alive())
      throw std::runtime_error("isopoold does not start: " + lastLine(folder_ + "/supervisor.log"));
  }
  for (int i = 0; i < plan_.programs; ++i) startProgram();
}

Target::~Target() { mark_.kill(); }

std::vector<std::string> Target::variables() const {
  std::vector<std::string> all{
      mark_.variable(),
      "LD_PRELOAD=" + installation_.clockLibrary,
      "ISOPOOL_CHAOS_CLOCK=" + folder_ + "/clock",
      // Thousands of deaths are intended here, so no slot may be quarantined for them.
      "ISOPOOL_RESTART_LIMIT=1000",
      "ISOPOOL_RESTART_WINDOW=1s",
      "ISOPOOL_QUARANTINE=200ms",
      "ISOPOOL_INPUT_ARENA_LIMIT=64MiB",
      "ISOPOOL_OUTPUT_ARENA_LIMIT=8MiB",
      "ISOPOOL_LOG=warning",
  };
  if (plan_.plain) {
    all.push_back("ISOPOOL_WORKER=" + installation_.plainWorker);
  } else {
    all.push_back("ISOPOOL_WORKER_MEMORY=384MiB");
  }
  return all;
}

void Target::startSupervisor() {
  const std::string address = folder_ + "/socket";
  supervisor_ = std::make_unique<Spawned>(
      std::vector<std::string>{installation_.supervisor, "--listen", address, "--workers",
                               std::to_string(plan_.workers), "--log-format", "text"},
      variables(), folder_ + "/supervisor.log");
  waitUntil([&] { return listens(address) || !supervisor_->alive(); }, onThisMachine(kPatience));
  lastServed_ = Clock::now();
}

void Target::startProgram() {
  const uint64_t number = ++nextNumber_;
  const std::string life = folder_ + "/" + std::to_string(++lives_);
  std::ofstream(life + ".effects").flush();
  std::ofstream(life + ".history").flush();
  std::vector<std::string> words{installation_.program,
                                 "--number",
                                 std::to_string(number),
                                 "--seed",
                                 std::to_string(plan_.seed * 1000 + static_cast<uint64_t>(lives_)),
                                 "--workers",
                                 std::to_string(plan_.workers),
                                 "--package",
                                 installation_.package,
                                 "--history",
                                 life + ".history",
                                 "--effects",
                                 life + ".effects"};
  if (plan_.plain) words.emplace_back("--plain");
  // Not otherwise: Python and torch would have to start for each manager.
  if (plan_.plain || plan_.shared) words.emplace_back("--more-managers");
  if (!plan_.fault.empty() && lives_ == 1) words.insert(words.end(), {"--fault", plan_.fault});
  std::vector<std::string> environment = variables();
  if (plan_.shared) {
    environment.push_back("ISOPOOL_SOCKET=" + folder_ + "/socket");
    // Every second program attaches again by itself, the others make a new manager.
    if (lives_ % 2 == 0) {
      words.emplace_back("--reconnects");
    } else {
      environment.emplace_back("ISOPOOL_RECONNECT=0");
    }
  }
  Program program;
  program.name = plan_.name + " program " + std::to_string(lives_);
  program.process = std::make_unique<Spawned>(words, environment, folder_ + "/programs.log");
  program.outcomes = std::make_unique<Outcomes>(program.name, life + ".history", life + ".effects",
                                                attacks_, findings_, plan_.slowness);
  programs_.push_back(std::move(program));
}

void Target::setClockAhead(milliseconds ahead) {
  // All processes of the target have mapped the file, so it is written in place.
  std::fstream file(folder_ + "/clock", std::ios::binary | std::ios::in | std::ios::out);
  if (!file) file.open(folder_ + "/clock", std::ios::binary | std::ios::out);
  const int64_t nanoseconds = ahead.count() * 1'000'000;
  file.write(reinterpret_cast<const char*>(&nanoseconds), sizeof nanoseconds);
}

// ---- processes -------------------------------------------------------------------------------

std::vector<Member> Target::members() const {
  std::vector<pid_t> roots;
  for (const Program& program : programs_) roots.push_back(program.process->pid());
  if (supervisor_) roots.push_back(supervisor_->pid());
  // A private guardian is an orphan, so this process has adopted it.
  for (const pid_t child : childrenOf(::getpid())) {
    const bool known = std::find(roots.begin(), roots.end(), child) != roots.end();
    if (!known && hasVariable(child, mark_.variable())) roots.push_back(child);
  }
  std::vector<Member> found;
  std::set<pid_t> ofZygotes;
  for (size_t i = 0; i < roots.size(); ++i) {
    const ProcessStatus status = chaos::statusOf(roots[i]);
    const bool isZygote = isWorkerProgram(status) && !status.forkedOnly;
    for (const pid_t child : childrenOf(roots[i])) {
      roots.push_back(child);
      if (isZygote) ofZygotes.insert(child);
    }
    if (!status.alive()) continue;
    Member member{{roots[i], status.startTime}, Role::kOther, ofZygotes.count(roots[i]) != 0};
    if (status.name.rfind("isopool_chaos_p", 0) == 0) {
      // A program's child that has not called exec() yet becomes its supervisor.
      member.role = status.forkedOnly ? Role::kSupervisor : Role::kProgram;
    }
    if (status.name == "isopoold-guard") member.role = Role::kGuardian;
    if (status.name == "isopoold") member.role = Role::kSupervisor;
    if (isWorkerProgram(status)) {
      member.role = status.forkedOnly ? Role::kWorker : Role::kZygote;
    }
    found.push_back(member);
  }
  return found;
}

std::vector<pid_t> Target::living(Role role) const {
  std::vector<pid_t> found;
  for (const Member& member : members()) {
    if (member.role == role) found.push_back(member.id.pid);
  }
  return found;
}

bool Target::owns(pid_t pid) const { return hasVariable(pid, mark_.variable()); }

std::vector<pid_t> Target::marked() const { return mark_.processes(); }

// ---- deaths ----------------------------------------------------------------------------------

void Target::checkEnd(const std::string& who, pid_t pid, std::optional<int> status,
                      const char* log) {
  if (attacks_.attacked(pid)) return;
  findings_.add(Fault::kSurvivorCrashed,
                who + " (pid " + std::to_string(pid) + ") " +
                    (status ? describeEnd(*status) : "ended") +
                    " though nobody had attacked it; the log ends:" + endOf(folder_ + "/" + log));
}

// A supervisor that ends removes its socket first. The rest may take a while, or it may be stopped.
void Target::noteWhetherItServes() {
  if (!supervisor_) return;
  const auto now = Clock::now();
  if (supervisor_->alive() && std::filesystem::exists(folder_ + "/socket")) {
    lastServed_ = now;
  } else {
    attacks_.noteDisturbance(lastServed_ - onThisMachine(kBeforeItIsSeen), now);
  }
}

void Target::revive() {
  noteWhetherItServes();
  if (supervisor_ && !supervisor_->alive()) {
    checkEnd(plan_.name + " supervisor", supervisor_->pid(),
             supervisor_->waitForEnd(onThisMachine(milliseconds(1000))), "supervisor.log");
    // The old supervisor may serve its socket until the kernel has killed it with its guardian.
    waitUntil(
        [this] {
          return living(Role::kSupervisor).empty() && living(Role::kWorker).empty() &&
                 !listens(folder_ + "/socket");
        },
        onThisMachine(kPatience));
    const auto from = lastServed_ - onThisMachine(kBeforeItIsSeen);
    startSupervisor();
    attacks_.noteDisturbance(from, lastServed_);
  }
  int alive = 0;
  for (size_t i = 0; i < programs_.size();) {
    if (programs_[i].process->alive()) {
      ++alive;
      ++i;
      continue;
    }
    checkEnd(programs_[i].name, programs_[i].process->pid(),
             programs_[i].process->waitForEnd(onThisMachine(milliseconds(1000))), "programs.log");
    dead_.push_back(std::move(programs_[i]));
    programs_.erase(programs_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (; alive < plan_.programs; ++alive) startProgram();
}

// ---- taking stock ----------------------------------------------------------------------------

void Target::takeStock() {
  // A supervisor that loses its first zygote ends, a moment later. What that zygote has forked, to
  // try what the kernel permits, may outlive it for so long.
  waitUntil(
      [this] {
        revive();
        const std::vector<Member> all = members();
        return !supervisor_ || std::count_if(all.begin(), all.end(),
                                             std::mem_fn(&Member::isWholeWorker)) >= plan_.workers;
      },
      onThisMachine(kPatience));
  std::vector<Standing> standings;
  for (Program& program : programs_) program.process->say("rest");
  for (Program& program : programs_) {
    const auto patience = plan_.fault.empty() ? kPatienceForRest : kPatienceWithFault;
    if (program.process->hear(onThisMachine(patience)) == "resting") {
      standings.push_back(Standing::kResting);
    } else {
      // A dying process closes its pipe before it can be reaped.
      const bool ended = program.process->waitForEnd(onThisMachine(kPatienceForExit)).has_value();
      standings.push_back(ended ? Standing::kDead : Standing::kStuck);
    }
  }
  for (Program& program : programs_) program.outcomes->read(excused_);
  for (Program& program : dead_) {
    if (program.process) program.outcomes->read(excused_);
  }
  excused_ = milliseconds(0);
  for (size_t i = 0; i < programs_.size(); ++i) programs_[i].outcomes->judge(standings[i]);
  for (Program& program : dead_) {
    if (program.process) program.outcomes->judge(Standing::kDead);
    program.process.reset();
  }
  bool allRest = true;
  for (size_t i = 0; i < programs_.size(); ++i) {
    if (standings[i] == Standing::kResting) continue;
    allRest = false;
    // The program's calls were judged; a new program replaces it.
    if (standings[i] == Standing::kStuck) {
      findings_.add(Fault::kHung, programs_[i].name +
                                      " does not come to rest; what its target said " +
                                      "last: " + lastLine(folder_ + "/programs.log"));
      attacks_.note(programs_[i].process->pid());
      ::kill(programs_[i].process->pid(), SIGKILL);
    }
  }
  if (allRest) {
    for (Program& program : programs_) checkBooks(program);
    if (waitUntilComplete()) checkHoldings();
  }
  attacks_.endRound();
  for (Program& program : programs_) program.process->say("go");
}

void Target::end() {
  takeStock();
  for (Program& program : programs_) program.process->say("end");
  for (Program& program : programs_) {
    const auto status = program.process->waitForEnd(onThisMachine(kPatience));
    if (!status) {
      findings_.add(Fault::kHung, program.name + " does not end");
    } else if (*status != 0) {
      checkEnd(program.name, program.process->pid(), status, "programs.log");
    }
    program.outcomes->read(milliseconds(0));
    const bool killed = attacks_.attacked(program.process->pid());
    program.outcomes->judge(killed ? Standing::kDead : Standing::kResting);
  }
  if (supervisor_) {
    attacks_.note(supervisor_->pid());
    ::kill(supervisor_->pid(), SIGTERM);
    const auto status = supervisor_->waitForEnd(onThisMachine(kPatience));
    if (!status || *status != 0) {
      findings_.add(status ? Fault::kSurvivorCrashed : Fault::kHung,
                    plan_.name + ": the supervisor " +
                        (status ? describeEnd(*status) : "does not end") +
                        " on SIGTERM; it said last: " + lastLine(folder_ + "/supervisor.log"));
    }
  }
  if (waitUntil([this] { return marked().empty(); }, onThisMachine(milliseconds(5000)))) return;
  const std::vector<pid_t> left = marked();
  std::string who;
  for (const pid_t pid : left)
    who.append(" ").append(std::to_string(pid)).append(" ").append(chaos::statusOf(pid).name);
  findings_.add(Fault::kLeakedProcesses, plan_.name + " leaves processes behind:" + who,
                left.size());
}

// ---- figures ---------------------------------------------------------------------------------

uint64_t Target::calls() const {
  uint64_t sum = 0;
  for (const Program& program : programs_) sum += program.outcomes->calls();
  for (const Program& program : dead_) sum += program.outcomes->calls();
  return sum;
}

uint64_t Target::selfInflictedDeaths() const {
  uint64_t sum = 0;
  for (const Program& program : programs_) sum += program.outcomes->selfInflictedDeaths();
  for (const Program& program : dead_) sum += program.outcomes->selfInflictedDeaths();
  return sum;
}

uint64_t Target::outcomes(Outcome outcome) const {
  const auto index = static_cast<size_t>(outcome);
  uint64_t sum = 0;
  for (const Program& program : programs_) sum += program.outcomes->outcomes()[index];
  for (const Program& program : dead_) sum += program.outcomes->outcomes()[index];
  return sum;
}

ManagerCounts Target::managers(RecordFlag act) const {
  ManagerCounts sum;
  for (const std::vector<Program>* programs : {&programs_, &dead_}) {
    for (const Program& program : *programs) sum += program.outcomes->managers(act);
  }
  return sum;
}

milliseconds Target::latest() const {
  milliseconds latest(0);
  for (const Program& program : programs_) latest = std::max(latest, program.outcomes->latest());
  for (const Program& program : dead_) latest = std::max(latest, program.outcomes->latest());
  return latest;
}

}  // namespace chaos
