// SPDX-License-Identifier: BSD-3-Clause
// The supervisor makes the shared memory, starts and watches the processes, and notifies clients of
// events. It does nothing else: it runs no user code, maps no memory that a worker writes, takes no
// lock, and never waits for another process. A process of its own that does not answer is killed;
// messages to a client that does not read are queued, up to a limit.
#include "supervisor/supervisor.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "base/memory_limits.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/zygote_messages.h"
#include "ipc/crash_point.h"
#include "supervisor/clients/report.h"
#include "supervisor/processes/orphans.h"

namespace isopool::supervisor {

namespace {

constexpr base::Milliseconds kDrainLook(5);
constexpr size_t kReleasedAtOnce = 32;
// Connections beyond max_clients, so that operators can connect when the limit is reached.
constexpr size_t kOperators = 32;
// Connections that a user who is no operator may have beyond max_clients_per_user: a program that
// reads reports connects like one that calls.
constexpr size_t kReportsOfUser = 2;
// Descriptors that programs leave free, for reports of operators and for workers that are replaced.
constexpr uint64_t kReservedDescriptors = 8;
// Its connection, its pidfd, and the first segment of its inputs.
constexpr uint64_t kDescriptorsOfProgram = 3;
// The memory of both ends and of results.
constexpr uint64_t kDescriptorsOfChannel = 3;
constexpr size_t kLongestFailure = 1000;

}  // namespace

Supervisor::Supervisor(const Platform& platform, const Options& options, InheritedLimits limits,
                       SupervisorEvents events)
    : options_(options),
      events_(std::move(events)),
      loop_(platform.loop),
      processes_(platform.processes),
      stock_(loop_, options_.outputArena,
             options_.privatePool ? 1 : options_.workers + options_.spares),
      zygote_(loop_, processes_, options_, std::move(limits),
              Zygote::Events{.ready = [this](const ipc::ZygoteReady&) { zygoteReady(); },
                             .givenUp = [this](const std::string& text) { zygoteGivenUp(text); },
                             .struggling =
                                 [this](const std::string&) {
                                   for (const auto& [name, group] : groups_)
                                     group->onZygoteCrashLoop();
                                   if (privateClient_ != nullptr)
                                     privateClient_->onZygoteCrashLoop();
                                 },
                             .reaped = [this] { childReaped(); },
                             .forksSettled = [this] { sweepSoon(); }}),
      services_{.loop = loop_,
                .processes = processes_,
                .options = options_,
                .stock = stock_,
                .zygote = zygote_,
                .outputQuota = platform.outputQuota,
                .packages = {},
                .random = std::minstd_rand(platform.seed),
                .lastEpoch = {}},
      startedAt_(loop_.now()),
      drained_(loop_),
      alive_(loop_) {}

// Before the workers' lifelines close.
Supervisor::~Supervisor() {
  if (privateClient_ != nullptr) privateClient_->hangUp();
  for (const auto& [id, client] : clients_) client->hangUp();
}

void Supervisor::addClient(base::Fd socket) {
  const ClientId id = lastClient_ = ClientId(lastClient_.value + 1);
  privateClient_ = std::make_unique<PrivateClient>(
      services_, id, std::move(socket),
      PrivateClient::Events{
          .over = [this](const std::string& reason) { privateClientOver(reason); },
          .reaped = [this] { childReaped(); }});
}

void Supervisor::listen(ListeningSocket socket, Accept when) {
  resizeGroups();
  socket_ = std::move(socket);
  if (when == Accept::kAtOnce) startAccepting();
}

void Supervisor::startAccepting() {
  if (!socket_) return;
  listener_.emplace(loop_, *std::exchange(socket_, std::nullopt),
                    [this](base::Fd connection) { accept(std::move(connection)); });
  ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorListening);
}

void Supervisor::makeGroup(const std::string& name, uint32_t workers) {
  auto& group = groups_[name];
  group = std::make_unique<WorkerGroup>(
      services_, name,
      WorkerGroup::Events{.reaped = [this] { childReaped(); },
                          .served = [this] { loop_.post([this] { serve(); }); },
                          .quarantined =
                              [this, name](const std::string& text) {
                                if (!waitsForWorkers() || groups_[name]->serves()) return;
                                loop_.post([this, text] { cannotServe(text); });
                              }});
  group->openPool(kSharedPool, workers);
}

// Makes the groups that the settings name, and gives those that exist their size of the settings.
void Supervisor::resizeGroups() {
  std::map<std::string, uint32_t> sizes{{std::string(kSharedGroup), options_.workers}};
  for (const ClientClass& each : options_.classes) {
    if (each.dedicatedWorkers > 0) sizes[each.name] = each.dedicatedWorkers;
  }
  for (const auto& [name, workers] : sizes) {
    const auto found = groups_.find(name);
    if (found == groups_.end()) {
      makeGroup(name, workers);
    } else {
      found->second->resizePool(kSharedPool, workers);
    }
  }
}

int Supervisor::run() {
  std::vector<int> signals{SIGCHLD, SIGTERM, SIGINT};
  if (!options_.privatePool) signals.push_back(SIGHUP);
  loop_.onSignals(signals, [this](int signal) { signalled(signal); });
  sayAlive();
  zygote_.start();
  loop_.run();
  listener_.reset();
  return exitCode_;
}

void Supervisor::logOutput() {
  if (privateClient_ != nullptr) privateClient_->logOutput();
  for (const auto& [name, group] : groups_) group->logOutput();
}

void Supervisor::makeFolders() {
  if (folders_ || options_.workerFolders.empty()) return;
  try {
    folders_.emplace(options_.workerFolders);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning,
              "workers get no folders for temporary files: " + std::string(error.what()));
  }
}

void Supervisor::zygoteReady() {
  if (zygote_.readiness()->needsFolders) makeFolders();
  if (privateClient_ != nullptr) privateClient_->zygoteReady();
  for (const auto& [id, client] : clients_) client->zygoteReady();
  serve();
}

// A successor whose workers do not start must not replace a supervisor that serves.
bool Supervisor::waitsForWorkers() const {
  if (!socket_) return false;
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const auto& entry) { return !entry.second->serves(); });
}

void Supervisor::serve() {
  if (served_ || !zygote_.readiness() || waitsForWorkers()) return;
  served_ = true;
  startAccepting();
  for (const std::string& missing : zygote_.readiness()->missingProtections) {
    base::log(base::LogLevel::kWarning,
              "the sandbox is weaker than " + options_.sandbox + ": " + missing);
  }
  if (events_.serving) events_.serving();
}

void Supervisor::cannotServe(const std::string& text) {
  if (served_) return;
  base::log(base::LogLevel::kError, "no worker can start: " + text);
  if (events_.failed) events_.failed("no worker can start: " + text);
  stop(1);
}

void Supervisor::zygoteGivenUp(const std::string& text) {
  refuseAll("isopool can't start: " + text);
  if (events_.failed) events_.failed(text);
  stop(1);
}

// ---- clients ---------------------------------------------------------------------------------

void Supervisor::accept(base::Fd socket) {
  std::string refusal;
  Peer peer;
  try {
    peer = processes_.peer(socket);
    refusal = whyRefused(socket, peer, options_.socketGroup);
    // A worker that connects as a program could get around its sandbox.
    if (refusal.empty() && options_.sandbox == "strict" &&
        processes_.isDescendant(peer.processId)) {
      // It may have ended while its connection waited, as when this supervisor starts.
      if (processes_.groupOf(peer.processId) < 0) return;
      refusal =
          "it was started by a worker, or its ancestors can't be determined: the strict sandbox "
          "does not let workers connect to their supervisor";
    }
    if (refusal.empty()) refusal = limitOfConnections(peer);
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  if (!refusal.empty()) {
    ++refusedConnections_;
    base::log(base::LogLevel::kWarning,
              "process " + std::to_string(peer.processId) + " is refused: " + refusal);
    ipc::ControlSocket(std::move(socket)).send(ipc::Failure{refusal}, {}, base::Milliseconds(0));
    return;
  }
  const ClientId id = lastClient_ = ClientId(lastClient_.value + 1);
  clients_[id] = std::make_unique<SharedClient>(
      services_, id, std::move(socket), peer,
      SharedClient::Events{
          .over = [this, id](const std::string& reason) { clientOver(id, reason); },
          .groupFor = [this](const ClientClass* its) -> WorkerGroup& { return groupFor(its); },
          .calls =
              [this](const SharedClient& client, const std::vector<ipc::ModelCalls>& calls) {
                classTotals_[client.className()].models.add(calls, loop_.now());
              },
          .report = [this] { return report(); },
          .settings =
              [this] {
                return events_.settings ? events_.settings() : std::vector<ipc::ReportedSetting>();
              },
          .act = [this,
                  id](const ipc::RequestAction& request) { return act(*clients_.at(id), request); },
          .descriptorsOfClients = [this] { return descriptorsOfClients(); },
          .lacksDescriptors = [this] { return freeDescriptors() < kReservedDescriptors; },
          .whyNoMorePrograms =
              [this, user = peer.userId](const std::string& program) {
                return whyNoMorePrograms(user, program);
              }});
  ipc::reachCrashPoint(ipc::CrashPoint::kClientAccepted);
}

size_t Supervisor::descriptorsOfClients() const {
  size_t all = 0;
  for (const auto& [id, client] : clients_) all += client->declaredDescriptors();
  return all;
}

std::string Supervisor::whyNoMorePrograms(uid_t user, const std::string& program) {
  // A program that connected before the successor served is passed on to it: see SharedClient.
  if (draining_ && !replaced_) {
    return "the supervisor is shutting down and serves no new programs";
  }
  std::string refusal = banOf(user, program);
  if (!refusal.empty()) return refusal;
  refusal = limitOfPrograms(user);
  if (!refusal.empty()) {
    ++refusedPrograms_;
    return refusal;
  }
  return lackOfDescriptors();
}

// Empty, or why an operator lets no program of this user with this name attach.
std::string Supervisor::banOf(uid_t user, const std::string& program) {
  std::erase_if(bans_, [this](const Ban& ban) { return ban.until <= loop_.now(); });
  const auto ban = std::find_if(bans_.begin(), bans_.end(), [&](const Ban& each) {
    return each.userId == user && each.program == program;
  });
  if (ban == bans_.end()) return {};
  // Its managers try again every second.
  quietly_ = std::exchange(ban->reported, true);
  const auto left = std::chrono::ceil<std::chrono::seconds>(ban->until - loop_.now());
  return "an operator has evicted programs of user " + std::to_string(user) + " with the name " +
         program + "; they may attach again in " + std::to_string(left.count()) + " s";
}

// Empty, or the limit that another connection of this peer would exceed. Counts also connections
// that have not said what they are.
std::string Supervisor::limitOfConnections(const Peer& peer) const {
  const bool ofOperator = whyNoActions(peer).empty();
  size_t all = 0;
  size_t ofUser = 0;
  for (const auto& [id, client] : clients_) {
    // Of an operator only its programs take a place of others.
    const bool reserved = !client->isServedProgram() && whyNoActions(client->peer()).empty();
    if (ofOperator || !reserved) ++all;
    if (client->peer().userId == peer.userId) ++ofUser;
  }
  if (ofOperator && all >= options_.maxClients + kOperators) {
    return std::to_string(all) +
           " connections are open, which is the limit (max_clients and 32 for operators)";
  }
  if (ofOperator) return {};
  if (all >= options_.maxClients) {
    return std::to_string(all) +
           " connections are open, which is the limit (max_clients, ISOPOOL_MAX_CLIENTS); 32 more "
           "are for root and the supervisor's user";
  }
  if (options_.maxClientsPerUser == 0 || ofUser < options_.maxClientsPerUser + kReportsOfUser) {
    return {};
  }
  return std::to_string(ofUser) + " connections of user " + std::to_string(peer.userId) +
         " are open, which is the limit of one user: max_clients_per_user "
         "(ISOPOOL_MAX_CLIENTS_PER_USER), and " +
         std::to_string(kReportsOfUser) + " for reports";
}

uint64_t Supervisor::freeDescriptors() const {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return UINT64_MAX;
  const uint64_t open = processes_.openDescriptors();
  return limit.rlim_cur > open ? limit.rlim_cur - open : 0;
}

// Without descriptors the messages of all programs, and those of operators, would wait.
std::string Supervisor::lackOfDescriptors() const {
  const uint64_t needed = kDescriptorsOfProgram + kDescriptorsOfChannel * options_.workers;
  const uint64_t available = freeDescriptors();
  if (available >= needed + kReservedDescriptors) return {};
  return "isopoold may open " + std::to_string(available) +
         " further files, and another program needs up to " + std::to_string(needed) +
         " beside a reserve of " + std::to_string(kReservedDescriptors) +
         ": raise LimitNOFILE of the unit, or ulimit -n";
}

// Empty, or the limit that another program of this user would exceed.
std::string Supervisor::limitOfPrograms(uid_t user) const {
  size_t programs = 0;
  size_t ofUser = 0;
  for (const auto& [id, client] : clients_) {
    if (!client->isServedProgram()) continue;
    ++programs;
    if (client->peer().userId == user) ++ofUser;
  }
  if (programs >= options_.maxClients) {
    return std::to_string(programs) +
           " programs are connected, which is the limit (max_clients, ISOPOOL_MAX_CLIENTS)";
  }
  if (options_.maxClientsPerUser != 0 && ofUser >= options_.maxClientsPerUser) {
    return std::to_string(ofUser) + " programs of user " + std::to_string(user) +
           " are connected, which is the limit of one user (max_clients_per_user, "
           "ISOPOOL_MAX_CLIENTS_PER_USER)";
  }
  return {};
}

// The client is kept until the supervisor ends: its last message is not sent yet.
void Supervisor::privateClientOver(const std::string& reason) {
  const bool failed = !reason.empty() && !ending_;
  if (failed) base::log(base::LogLevel::kError, privateClient_->describe() + ": " + reason);
  stop(failed ? 1 : 0);
}

void Supervisor::clientOver(ClientId id, const std::string& reason) {
  const auto found = clients_.find(id);
  SharedClient& client = *found->second;
  if (!client.isOperator()) client.addNewTo(classTotals_[client.className()]);
  if (ending_ || evicting_) {
    base::log(base::LogLevel::kInfo, found->second->describe() + " is disconnected: " + reason,
              {{"client", id.value}});
  } else if (std::exchange(quietly_, false)) {
    ++refusedConnections_;
  } else if (!reason.empty()) {
    ++refusedConnections_;
    const auto leftOut = refusalRate_.next(loop_.now());
    if (leftOut) {
      base::log(base::LogLevel::kWarning,
                found->second->describe() + " is refused: " + reason + *leftOut);
    }
  } else if (!found->second->isOperator()) {
    base::log(base::LogLevel::kInfo, found->second->describe() + " has disconnected",
              {{"client", id.value}});
  }
  // Destroyed by a later handler: the client is calling us, and its last message is not sent yet.
  loop_.post([leaving = std::shared_ptr<SharedClient>(std::move(found->second))] {});
  clients_.erase(found);
  ipc::reachCrashPoint(ipc::CrashPoint::kClientForgotten);
}

WorkerGroup& Supervisor::groupFor(const ClientClass* its) {
  const auto dedicated = its != nullptr ? groups_.find(its->name) : groups_.end();
  return dedicated != groups_.end() ? *dedicated->second : *groups_.at(std::string(kSharedGroup));
}

ipc::Report Supervisor::report() {
  ipc::Report report;
  report.version = ISOPOOL_VERSION;
  report.processId = ::getpid();
  report.zygoteProcessId = zygote_.pid();
  report.address = options_.listen;
  report.state = draining_ ? "draining" : served_ ? "serving" : "starting";
  report.uptimeMilliseconds = static_cast<uint64_t>(
      std::chrono::duration_cast<base::Milliseconds>(loop_.now() - startedAt_).count());
  if (const auto& zygote = zygote_.readiness()) {
    report.pythonVersion = zygote->pythonVersion;
    report.torchVersion = zygote->torchVersion;
    report.missingProtections = zygote->missingProtections;
  }
  report.sandbox = options_.sandbox;
  report.zygoteRestarts = zygote_.restarts();
  report.refusedConnections = refusedConnections_;
  report.refusedPrograms = refusedPrograms_;
  report.openDescriptors = processes_.openDescriptors();
  report.lackOfDescriptors = lackOfDescriptors();
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) report.descriptorLimit = descriptors.rlim_cur;
  report.clientDescriptors = descriptorsOfClients();
  report.clientLimit = options_.maxClients;
  const base::LostLines lost = base::lostLines();
  for (size_t kind = 0; kind < lost.size(); ++kind) {
    report.lostLogLines.push_back({base::kLineKindNames[kind], lost[kind]});
  }
  const OutputQuota::Dropped& dropped = services_.outputQuota.dropped();
  for (size_t reason = 0; reason < dropped.size(); ++reason) {
    report.droppedOutput.push_back({OutputQuota::kReasonNames[reason], dropped[reason]});
  }
  if (const auto memory = base::memoryUse()) {
    report.memoryUsed = memory->used;
    report.memoryLimit = memory->limit;
  }
  report.successor = successor_;
  report.reloadFailure = reloadFailure_;
  report.needRestart = needRestart_;
  for (const auto& [name, group] : groups_) reportGroup(*group, services_, report);
  std::map<const PackageMemory*, ipc::ReportedModel> models;
  for (const auto& [id, client] : clients_) {
    if (client->isOperator()) continue;
    report.clients.push_back(client->report());
    report.sharedBytes += client->declaredBytes();
    client->appendModels(models);
  }
  for (auto& [memory, model] : models) {
    report.sharedBytes += model.bytes;
    report.models.push_back(std::move(model));
  }
  reportClasses(report);
  return report;
}

// Classes of which no program has attached yet are reported, too: a count that begins with 0 shows
// its first increase.
void Supervisor::reportClasses(ipc::Report& report) {
  classTotals_[""];
  for (const ClientClass& each : options_.classes) classTotals_[each.name];
  for (const auto& [id, client] : clients_) {
    if (!client->isOperator()) client->addNewTo(classTotals_[client->className()]);
  }
  for (const auto& [name, totals] : classTotals_) {
    ipc::ReportedClass& entry = report.classes.emplace_back();
    entry.name = name;
    entry.connections = totals.connections;
    entry.completedCalls = totals.completedCalls;
    entry.overdueCalls = totals.overdueCalls;
    for (size_t limit = 0; limit < totals.refusals.size(); ++limit) {
      entry.refusals.push_back({kClientLimitNames[limit], totals.refusals[limit]});
    }
    entry.models = totals.models.all();
  }
}

// ---- processes that are left over ------------------------------------------------------------

void Supervisor::childReaped() {
  killOrphans_ = true;
  sweepSoon();
}

// The sweep recognises the supervisor's own children by their pids. It waits for outstanding forks:
// the pid of a worker that is being forked is not known yet.
void Supervisor::sweepSoon() {
  if (std::exchange(sweepWanted_, true)) return;
  loop_.post([this] { sweepOrphans(); });
}

void Supervisor::sweepOrphans() {
  sweepWanted_ = false;
  if (zygote_.forksOutstanding()) return;  // Events::forksSettled repeats the sweep
  const std::vector<pid_t> own = ownChildren();
  // The children of killed orphans become ours: repeat until no orphan is left to kill.
  if (killOrphans_) killOrphans_ = killOrphans(processes_, own) > 0;
  reapOrphans(processes_, own);
  ipc::reachCrashPoint(ipc::CrashPoint::kOrphansSwept);
}

std::vector<pid_t> Supervisor::ownChildren() const {
  std::vector<pid_t> own;
  if (zygote_.pid() != 0) own.push_back(zygote_.pid());
  for (const auto& [name, group] : groups_) group->appendPids(own);
  if (privateClient_ != nullptr) privateClient_->appendPids(own);
  return own;
}

// ---- signals and the end ---------------------------------------------------------------------

void Supervisor::signalled(int signal) {
  if (signal == SIGHUP) return reload();
  if (signal == SIGCHLD) {
    passStateChangesOn();
    return sweepOrphans();
  }
  shutDown("received signal " + std::to_string(signal));
}

void Supervisor::passStateChangesOn() {
  for (;;) {
    const Processes::StateChange change = processes_.nextStateChange();
    if (change.child == 0) return;
    if (privateClient_ != nullptr) privateClient_->stateChanged(change);
    for (const auto& [name, group] : groups_) group->stateChanged(change);
  }
}

void Supervisor::reload() {
  if (!events_.reload) return;
  Reload reload = events_.reload();
  reloadFailure_ = reload.failure.substr(0, kLongestFailure);
  if (!reload.options) return;
  needRestart_ = std::move(reload.needRestart);
  options_ = *std::move(reload.options);
  services_.outputQuota.setLimit(options_.outputQuota);
  for (const auto& [name, group] : groups_) group->settingsChanged();
  if (!draining_) resizeGroups();
}

// Waits for calls in flight; clients refuse new calls. The second time it ends the supervisor
// without waiting.
void Supervisor::shutDown(const std::string& why) {
  base::log(base::LogLevel::kInfo, "shutting down: " + why);
  if (options_.privatePool || std::exchange(askedToEnd_, true)) {
    ending_ = true;
    refuseAll("the supervisor is shutting down");
    return stop(0);
  }
  if (draining_) return;  // a successor serves, and this supervisor ends anyway
  if (events_.draining) events_.draining();
  // A successor that starts meanwhile has the same socket.
  const bool isShared = successor_ == kStarting;
  if (listener_) isShared ? listener_->leaveToSuccessor() : listener_->close();
  drain("the supervisor is shutting down and takes no more calls");
}

void Supervisor::replaced() {
  replaced_ = true;
  successor_.clear();
  if (draining_) return;
  base::log(base::LogLevel::kInfo, "another supervisor has taken over the address");
  listener_->leaveToSuccessor();
  drain("another supervisor has taken over");
}

void Supervisor::successorFailed(const std::string& text) {
  successor_ = text;
  if (draining_) {
    // Both were told to end.
    if (listener_ && !replaced_) listener_->removeFile();
    base::log(base::LogLevel::kInfo, "no other supervisor takes over: the successor: " + text);
    return;
  }
  base::log(base::LogLevel::kError,
            "the restart failed, this supervisor goes on serving: the successor: " + text);
}

void Supervisor::drain(const std::string& text) {
  draining_ = true;
  for (const auto& [id, client] : clients_) client->drain(text, replaced_);
  awaitDrained();
}

void Supervisor::awaitDrained() {
  if (replaced_ || (listener_ && isTakenOver(listener_->socket()))) releaseDrained();
  const bool drained = std::all_of(clients_.begin(), clients_.end(),
                                   [](const auto& entry) { return entry.second->drained(); });
  // If the successor ends, too, the socket's file is to be removed here.
  const bool settled = successor_ != kStarting;
  if (!(drained && settled) && drainTime_.look(loop_.now()) < options_.drainTimeout) {
    return drained_.setAfter(kDrainLook, [this] { awaitDrained(); });
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kDrained);
  const auto left = std::count_if(clients_.begin(), clients_.end(), [](const auto& entry) {
    return entry.second->isServedProgram() && !entry.second->drained();
  });
  if (left != 0) {
    base::log(base::LogLevel::kWarning, "the drain time-out is over (ISOPOOL_DRAIN_TIMEOUT), and " +
                                            std::to_string(left) +
                                            (left == 1 ? " program has" : " programs have") +
                                            " not left: calls in flight are killed");
  }
  ending_ = true;
  refuseAll("the supervisor has shut down");
  stop(0);
}

// Another supervisor listens at the address: programs without a call attach to it while others wait
// for the ends of their calls. Some at a time: other handlers run in between.
void Supervisor::releaseDrained() {
  std::vector<SharedClient*> released;
  for (const auto& [id, client] : clients_) {
    if (released.size() == kReleasedAtOnce) break;
    if (client->mayMove()) released.push_back(client.get());
  }
  evicting_ = true;
  for (SharedClient* client : released) {
    client->refuse("another supervisor has taken over; a manager attaches to it by itself");
    ipc::reachCrashPoint(ipc::CrashPoint::kClientReleased);
  }
  evicting_ = false;
}

void Supervisor::refuseAll(const std::string& text) {
  if (privateClient_ != nullptr) privateClient_->refuse(text);
  // A copy: each client that ends is erased from the map.
  std::vector<SharedClient*> all;
  for (const auto& [id, client] : clients_) all.push_back(client.get());
  for (SharedClient* client : all) client->refuse(text);
}

void Supervisor::sayAlive() {
  if (!events_.alive || events_.aliveEvery.count() == 0) return;
  events_.alive();
  alive_.setAfter(events_.aliveEvery, [this] { sayAlive(); });
}

void Supervisor::stop(int exitCode) {
  if (loop_.stopped()) return;
  exitCode_ = exitCode;
  zygote_.kill();
  loop_.stop();
}

}  // namespace isopool::supervisor
