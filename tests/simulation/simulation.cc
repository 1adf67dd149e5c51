// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/simulation.h"

#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ipc/control/client_messages.h"
#include "ipc/control/operator_messages.h"
#include "supervisor/supervisor.h"
#include "tests/simulation/simulated_client.h"
#include "tests/simulation/simulated_event_loop.h"
#include "tests/simulation/simulated_zygote.h"

namespace isopool::simulation {

using base::Milliseconds;
using std::chrono::seconds;
using supervisor::Options;
using supervisor::Supervisor;

namespace {

constexpr uint64_t kMostSteps = 400'000;
// The limit after the last failure: messages may be up to 130 s late, and quarantines take time.
constexpr seconds kServedAgain(600);
// The limit after the request to end: drain_timeout, and the delays of a slow supervisor.
constexpr seconds kEnded(150);
constexpr seconds kNothingLeft(200);

size_t openDescriptors() {
  size_t count = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  while (::readdir(folder.get()) != nullptr) ++count;
  return count;
}

class Simulation {
 public:
  Simulation(uint64_t seed, const std::function<void(Misfortunes&)>& plant);
  Report run();

 private:
  enum class Phase { kStorm, kCalm, kEnding };

  void choose();
  void begin();
  void addClient(Microseconds when, base::Fd socket);
  void live();
  void nemesis();
  void operate();
  void calmDown();
  void end();
  void endInOrder();
  void checkEnd(int exitCode);
  void checkClients();
  void outliveSupervisor();
  base::Fd connect();

  World world_;
  Misfortunes misfortunes_;
  Ledger ledger_;
  Lives lives_;
  ProcessTable processes_;
  Options options_;
  SimulatedEventLoop loop_;
  supervisor::OutputQuota outputQuota_{0, {}};  // simulated processes print nothing
  std::optional<Supervisor> supervisor_;
  std::map<pid_t, SimulatedClient*> clientsByPid_;
  size_t clientsToCome_ = 0;
  std::vector<pid_t> clientPids_;
  std::vector<ipc::ControlSocket> operators_;
  uint64_t lastCall_ = 0;
  uint64_t quarantines_ = 0;
  bool everReady_ = false;
  uint64_t zygotes_ = 0;
  sockaddr_un address_{};
  socklen_t addressBytes_ = 0;
  Phase phase_ = Phase::kStorm;
  TimePoint until_;
  bool onePlace_ = false;  ///< one slot and no spare: its workers live one after the other
  bool toldToEnd_ = false;
  bool replaced_ = false;  ///< another supervisor has taken over the address
  bool crashed_ = false;
};

Simulation::Simulation(uint64_t seed, const std::function<void(Misfortunes&)>& plant)
    : world_(seed),
      ledger_(world_),
      processes_(world_, misfortunes_),
      loop_(world_, [this] { live(); }) {
  choose();
  if (plant) plant(misfortunes_);
}

// Each run has some kinds of failure often and other kinds not at all: so combinations are
// frequent.
void Simulation::choose() {
  Chance& chance = world_.chance;
  const auto sometimes = [&](uint64_t least, uint64_t most) {
    return chance.oneIn(2) ? chance.between(least, most) : uint64_t{0};
  };
  misfortunes_.workerDies = sometimes(8, 200);
  misfortunes_.workerFailsToStart = sometimes(2, 12);
  misfortunes_.workerSendsNonsense = chance.oneIn(4) ? chance.between(20, 200) : 0;
  misfortunes_.zygoteDies = sometimes(3, 30);
  misfortunes_.zygoteRefuses = chance.oneIn(3) ? chance.between(2, 12) : 0;
  misfortunes_.clientDies = chance.oneIn(5) ? chance.between(50, 400) : 0;
  misfortunes_.clientSendsNonsense = chance.oneIn(12) ? chance.between(50, 400) : 0;
  misfortunes_.clientReportsTheLiving = chance.oneIn(3) ? chance.between(20, 200) : 0;
  misfortunes_.neverAZygote = chance.oneIn(40) ? 1 : 0;

  options_.privatePool = chance.oneIn(2);
  options_.worker = "simulated";
  options_.outputArena = ipc::kPageBytes;
  options_.outputArenaLimit = 64 * ipc::kPageBytes;
  options_.workers = static_cast<uint32_t>(chance.between(1, 4));
  options_.spares = static_cast<uint32_t>(chance.between(0, 2));
  options_.restart.deaths = static_cast<uint32_t>(chance.between(2, 8));
  options_.restart.quarantine = Milliseconds(chance.between(100, 30'000));
  if (chance.oneIn(6)) {
    onePlace_ = options_.privatePool = true;
    options_.workers = 1;
    options_.spares = 0;
    options_.restart.window = std::chrono::hours(100);
  }
  // A replacement needs a second place.
  if (!onePlace_ && chance.oneIn(2)) {
    options_.recycling.calls = chance.between(0, 12);
    options_.recycling.age = Milliseconds(chance.oneIn(2) ? chance.between(500, 20'000) : 0);
    options_.recycling.memoryGrowth = chance.oneIn(3) ? 40u << 20 : 0;
    options_.recycling.memoryCap = chance.oneIn(3) ? 512u << 20 : 0;
    options_.recycling.patience = Milliseconds(chance.between(100, 60'000));
  }
}

void Simulation::begin() {
  SimulatedWorker::Places places{world_, processes_, ledger_, lives_, misfortunes_, [this] {
                                   for (const pid_t pid : clientPids_) processes_.rouse(pid);
                                 }};
  processes_.begin(
      [this, places](pid_t pid, base::Fd control, base::Fd lifeline) {
        ++zygotes_;
        return std::make_unique<SimulatedZygote>(places, pid, std::move(control),
                                                 std::move(lifeline), everReady_);
      },
      [this] {
        if (supervisor_) loop_.signal(SIGCHLD);
      });
  supervisor::SupervisorEvents events;
  events.reload = [this] {
    if (world_.chance.oneIn(3)) return supervisor::Reload{{}, "the new settings are invalid", {}};
    Options changed = options_;
    changed.grace = Milliseconds(world_.chance.between(10, 2000));
    changed.recycling.calls = world_.chance.between(0, 20);
    changed.workers = static_cast<uint32_t>(world_.chance.between(1, 4));
    return supervisor::Reload{changed, {}, {}};
  };
  supervisor_.emplace(supervisor::Platform{loop_, processes_, outputQuota_,
                                           static_cast<uint32_t>(world_.chance.below(1u << 31))},
                      options_, supervisor::InheritedLimits{}, std::move(events));
  if (options_.privatePool) {
    auto [ours, theirs] = ipc::ControlSocket::makePair();
    supervisor_->addClient(std::move(ours));
    addClient(Microseconds(0), std::move(theirs));
  } else {
    supervisor::ListeningSocket listening;
    listening.socket = base::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // Without a path the kernel chooses a unique name.
    address_.sun_family = AF_UNIX;
    ::bind(listening.socket.get(), reinterpret_cast<const sockaddr*>(&address_),
           sizeof(sa_family_t));
    ::listen(listening.socket.get(), 64);
    addressBytes_ = sizeof address_;
    ::getsockname(listening.socket.get(), reinterpret_cast<sockaddr*>(&address_), &addressBytes_);
    supervisor_->listen(std::move(listening));
    const uint64_t count = world_.chance.between(1, 4);
    for (uint64_t i = 0; i < count; ++i) {
      addClient(world_.chance.time(Microseconds(0), Microseconds(3'000'000)), base::Fd());
    }
  }
  for (uint64_t blows = world_.chance.oneIn(2) ? world_.chance.between(1, 20) : 0; blows > 0;
       --blows) {
    world_.after(world_.chance.time(Microseconds(0), Microseconds(20'000'000)),
                 [this] { nemesis(); });
  }
  const Microseconds storm = world_.chance.time(Microseconds(1'000'000), Microseconds(60'000'000));
  until_ = world_.now() + storm;
  // Lets the clock reach the storm's end even if no other event is left.
  world_.after(storm, [] {});
}

void Simulation::addClient(Microseconds when, base::Fd socket) {
  ++clientsToCome_;
  SimulatedClient::Plan plan;
  plan.shared = !options_.privatePool;
  plan.workers =
      plan.shared ? static_cast<uint32_t>(world_.chance.between(1, 4)) : options_.workers;
  plan.calls = static_cast<uint32_t>(world_.chance.between(0, 40));
  plan.loadsPackage = world_.chance.oneIn(3);
  plan.pause = world_.chance.time(Microseconds(0), Microseconds(3'000'000));
  // A call that is longer than the wait for a retiring worker never ends if it is retried.
  plan.longestCall = options_.recycling.patience / 2;
  const auto held = std::make_shared<base::Fd>(std::move(socket));
  world_.after(when, [this, plan, held] {
    --clientsToCome_;
    SimulatedClient* made = nullptr;
    const pid_t pid = processes_.start(
        [&](pid_t number) {
          SimulatedClient::Places places{world_,
                                         processes_,
                                         ledger_,
                                         misfortunes_,
                                         lastCall_,
                                         quarantines_,
                                         [this] {
                                           for (const pid_t child : processes_.children())
                                             processes_.rouse(child);
                                         },
                                         [this, held, number] {
                                           if (held->valid()) return std::move(*held);
                                           processes_.connects(number);
                                           return connect();
                                         }};
          auto client = std::make_unique<SimulatedClient>(places, number, plan);
          made = client.get();
          return client;
        },
        /*child=*/false);
    clientPids_.push_back(pid);
    clientsByPid_[pid] = made;
  });
}

base::Fd Simulation::connect() {
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), addressBytes_) != 0) {
    socket.close();
  }
  return socket;
}

// One attack from outside.
void Simulation::nemesis() {
  if (!world_.storm()) return;
  const uint64_t kind = world_.chance.below(20);
  if ((kind == 0 || kind == 2) && !options_.privatePool) return loop_.signal(SIGHUP);
  if (kind == 1 && !options_.privatePool && world_.chance.oneIn(3)) {
    world_.note("told to end early");
    toldToEnd_ = true;
    phase_ = Phase::kEnding;
    until_ = world_.now() + kEnded;
    return endInOrder();
  }
  if (kind >= 3 && kind <= 6 && !options_.privatePool) return operate();
  const std::vector<pid_t> children = processes_.children();
  if (children.empty()) return;
  processes_.end(children[world_.chance.below(children.size())], {.signal = SIGKILL});
}

// An operator connects, from the process of a client, and requests an action.
void Simulation::operate() {
  const auto alive = std::find_if(clientPids_.begin(), clientPids_.end(),
                                  [this](pid_t pid) { return processes_.alive(pid); });
  if (alive == clientPids_.end()) return;
  processes_.connects(*alive);
  base::Fd socket = connect();
  if (!socket.valid()) return;  // it has given up its address
  ipc::ControlSocket control(std::move(socket));
  ipc::Hello hello;
  hello.role = static_cast<uint32_t>(ipc::ClientRole::kOperator);
  hello.processId = *alive;
  const base::Fd self = processes_.open(*alive);
  control.send(hello, {self.get()}, Milliseconds(0));
  ipc::RequestAction request;
  switch (world_.chance.below(5)) {
    case 0:
      request.action = static_cast<uint32_t>(ipc::Action::kEvictClient);
      request.target = world_.chance.between(1, 8);
      if (world_.chance.oneIn(2)) request.milliseconds = world_.chance.between(1, 60'000);
      break;
    case 3:
      // Ends by itself: each client must be served in the end.
      request.action = static_cast<uint32_t>(ipc::Action::kPauseClient);
      request.target = world_.chance.between(1, 8);
      request.milliseconds = world_.chance.between(1, 60'000);
      break;
    case 4:
      request.action = static_cast<uint32_t>(ipc::Action::kResumeClient);
      request.target = world_.chance.between(1, 8);
      break;
    case 1:
      request.action = static_cast<uint32_t>(ipc::Action::kRecycleSlot);
      request.group = "shared";
      request.target = world_.chance.below(4);
      break;
    default:
      request.action = static_cast<uint32_t>(ipc::Action::kRecycleAll);
  }
  world_.note("an operator acts", request.action, request.target);
  control.send(request, {}, Milliseconds(0));
  operators_.push_back(std::move(control));
}

// ---- the life of the supervisor --------------------------------------------------------------

void Simulation::live() {
  while (!loop_.stopped()) {
    if (!world_.violations().empty()) return loop_.stop();
    if (phase_ == Phase::kStorm && world_.now() >= until_) calmDown();
    if (phase_ == Phase::kCalm) {
      const bool served = clientsToCome_ == 0 &&
                          std::all_of(clientPids_.begin(), clientPids_.end(), [this](pid_t pid) {
                            if (!processes_.alive(pid)) return true;
                            const SimulatedClient& client = *clientsByPid_.at(pid);
                            return client.over() || (client.done() && client.served());
                          });
      if (served) {
        end();
      } else if (world_.now() > until_) {
        world_.violated("a while after the last failure not every client is served; pending: " +
                        ledger_.firstPending());
      }
    }
    if (phase_ == Phase::kEnding && world_.now() > until_) {
      world_.violated("the supervisor was asked to end but has not ended");
    }
    if (!loop_.stopped() && !world_.step()) world_.violated("no event is left before the end");
    if (world_.steps() > kMostSteps)
      world_.violated("the run does not end within the limit of steps");
  }
}

void Simulation::calmDown() {
  world_.note("calm");
  world_.calm();
  phase_ = Phase::kCalm;
  until_ = world_.now() + kServedAgain;
}

void Simulation::end() {
  checkClients();
  phase_ = Phase::kEnding;
  until_ = world_.now() + kEnded;
  world_.note("end");
  const uint64_t how = world_.chance.below(3);
  if (how == 0) {
    crashed_ = true;
    return loop_.stop();
  }
  toldToEnd_ = true;
  if (how == 1 && options_.privatePool) {
    for (const pid_t pid : clientPids_) {
      if (processes_.alive(pid)) clientsByPid_.at(pid)->leave();
    }
    return;
  }
  endInOrder();
}

// By SIGTERM, or because another supervisor serves the address: then also by both.
void Simulation::endInOrder() {
  replaced_ = !options_.privatePool && world_.chance.oneIn(2);
  if (!replaced_ || world_.chance.oneIn(4)) loop_.signal(SIGTERM);
  if (!replaced_) return;
  world_.note("replaced");
  loop_.post([this] {
    if (supervisor_) supervisor_->replaced();
  });
}

void Simulation::checkClients() {
  for (const pid_t pid : clientPids_) {
    if (!processes_.alive(pid)) continue;
    const SimulatedClient& client = *clientsByPid_.at(pid);
    const auto says = [&](const char* words) {
      return client.failure().find(words) != std::string::npos;
    };
    const bool fair = !client.over() || says("broke the protocol") || says("it sent no Hello") ||
                      says("no worker can be started") || says("evicted this client") ||
                      says("has evicted programs") ||
                      (misfortunes_.clientSendsNonsense != 0 && says("is gone"));
    if (!fair) world_.violated("a client was given up: " + client.failure());
    if (client.wasQuarantined() && lives_.deathsOf(client.number()) < options_.restart.deaths) {
      world_.violated("client " + std::to_string(client.number()) +
                      " was in quarantine, but its calls ended only " +
                      std::to_string(lives_.deathsOf(client.number())) + " workers");
    }
    if (onePlace_ && !client.over()) {
      const uint64_t due = lives_.quarantinesDue(options_.restart.deaths);
      if (client.quarantines() != due) {
        world_.violated("the slot was quarantined " + std::to_string(client.quarantines()) +
                        " times, and by the policy " + std::to_string(due) + " times");
      }
    }
  }
}

void Simulation::checkEnd(int exitCode) {
  if (crashed_ || toldToEnd_ || !world_.violations().empty()) return;
  // The supervisor has ended by itself. This is allowed only without a zygote, or after the end of
  // its only client.
  if (exitCode == 1 && !everReady_) return;
  if (options_.privatePool) {
    const bool clientGone = clientPids_.empty() || !processes_.alive(clientPids_.front()) ||
                            clientsByPid_.at(clientPids_.front())->over();
    if (clientGone || exitCode == 1) return;
  }
  world_.violated("the supervisor ended by itself, with exit code " + std::to_string(exitCode));
}

void Simulation::outliveSupervisor() {
  world_.calm();
  const TimePoint giveUp = world_.now() + kNothingLeft;
  for (;;) {
    const bool clientsLeft = std::any_of(clientPids_.begin(), clientPids_.end(), [this](pid_t pid) {
      return processes_.alive(pid) && !clientsByPid_.at(pid)->over();
    });
    if (!clientsLeft && clientsToCome_ == 0) {
      for (const pid_t pid : clientPids_) processes_.end(pid, {.exitCode = 0});
      if (processes_.running() == 0) break;
    }
    if (world_.now() > giveUp) {
      world_.violated("the supervisor is gone but a process lives");
      break;
    }
    if (!world_.step()) {
      if (processes_.running() != 0) world_.violated("the supervisor is gone but processes hang");
      break;
    }
  }
  if (ledger_.pending() != 0) {
    world_.violated("after the end " + ledger_.firstPending() + " has no outcome for its caller");
  }
}

Report Simulation::run() {
  const TimePoint born = world_.now();
  begin();
  const int exitCode = supervisor_->run();
  checkEnd(exitCode);
  world_.note("supervisor ended", static_cast<uint64_t>(exitCode));
  loop_.forget();
  supervisor_.reset();
  loop_.forget();
  if (world_.violations().empty()) outliveSupervisor();
  Report report;
  report.violations = world_.violations();
  report.trace = world_.trace();
  report.steps = world_.steps();
  report.seconds = std::chrono::duration<double>(world_.now() - born).count();
  report.calls = ledger_.made();
  report.answered = ledger_.endings(Ending::kAnswered);
  report.lost = ledger_.endings(Ending::kWorkerLost);
  report.notStarted = ledger_.endings(Ending::kNotStarted);
  report.overdue = ledger_.endings(Ending::kOverdue);
  report.refused = ledger_.endings(Ending::kRefused);
  report.workers = lives_.count();
  report.zygotes = zygotes_;
  report.quarantines = quarantines_;
  return report;
}

}  // namespace

Report simulate(uint64_t seed, const std::function<void(Misfortunes&)>& plant) {
  const size_t before = openDescriptors();
  Report report = Simulation(seed, plant).run();
  const size_t after = openDescriptors();
  if (after != before && report.violations.empty()) {
    report.violations.push_back("descriptors were leaked: " + std::to_string(before) +
                                " open before, " + std::to_string(after) + " after");
  }
  return report;
}

}  // namespace isopool::simulation
