// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/control/message_type.h"
#include "ipc/control/model_calls.h"

/// The messages between a shared supervisor and an operator (the command `isopool`), which sends
/// Hello first (ipc/control/client_messages.h). What holds for every message:
/// ipc/control/message_type.h.
namespace isopool::ipc {

/// The class of programs that are in none, in metrics: no class of the settings has this name.
inline constexpr std::string_view kNoClass = "none";

// ---- operator -> supervisor -----------------------------------------------------------------

/// An operator requests a report. The supervisor answers with kReport and the same token.
struct RequestReport {
  static constexpr MessageType kType = MessageType::kRequestReport;
  uint64_t token = 0;  ///< chosen by the operator; the supervisor does not interpret it
  MSGPACK_DEFINE_ARRAY(token)
};

/// An operator requests the settings. The supervisor answers with kSettingsInForce.
struct RequestSettings {
  static constexpr MessageType kType = MessageType::kRequestSettings;
  uint64_t token = 0;
  MSGPACK_DEFINE_ARRAY(token)
};

/// What an operator may request. `target` and `group` are fields of RequestAction.
enum class Action : uint32_t {
  kEvictClient = 1,  ///< ends the connection of the client with the number `target`
  kRecycleWorker,    ///< replaces the worker whose process id is `target`
  kRecycleSlot,      ///< replaces the worker that serves slot `target` of `group`
  kRecycleAll,       ///< replaces all workers that serve now, one of each group at a time
  kPauseClient,      ///< the client with the number `target` publishes no calls
  kResumeClient,     ///< ends that
  kDrain,            ///< ends the supervisor as SIGTERM does
  kRestart           ///< starts another supervisor that takes over the address, and ends this one
};

/// An operator requests an action: only the supervisor's own user and root may. The supervisor
/// answers with kActionDone and the same token. Since version 4.
struct RequestAction {
  static constexpr MessageType kType = MessageType::kRequestAction;
  uint64_t token = 0;
  uint32_t action = 0;  ///< an Action
  uint64_t target = 0;
  std::string group;  ///< ReportedWorker::group; empty if the action needs none
  /// kEvictClient: for how long programs of its user and its name are refused. kPauseClient: for
  /// how long; 0: until the client is resumed or leaves.
  uint64_t milliseconds = 0;
  MSGPACK_DEFINE_ARRAY(token, action, target, group, milliseconds)
};

// ---- supervisor -> operator -----------------------------------------------------------------

struct ReportedSetting {
  std::string key;          ///< as in the settings file
  std::string value;        ///< as in the settings file; empty: none
  std::string source;       ///< "flag --spares", "file PATH:LINE", "default", ...
  bool reloadable = false;  ///< a reload of the file can change it
  MSGPACK_DEFINE_ARRAY(key, value, source, reloadable)
};

/// The settings by which a shared supervisor works now, reloads included.
struct SettingsInForce {
  static constexpr MessageType kType = MessageType::kSettingsInForce;
  uint64_t token = 0;
  std::vector<ReportedSetting> settings;
  bool complete = true;  ///< false: a message can't hold all of them
  MSGPACK_DEFINE_ARRAY(token, settings, complete)
};

/// The outcome of an action. A worker that is recycled is not replaced yet: that waits for a spare.
struct ActionDone {
  static constexpr MessageType kType = MessageType::kActionDone;
  uint64_t token = 0;
  bool done = false;
  std::string text;  ///< one line: what was done, or why nothing was done
  MSGPACK_DEFINE_ARRAY(token, done, text)
};

// The parts of a Report, and last the message itself.

/// How often user code of a worker tried what the sandbox forbids.
struct ReportedCount {
  std::string name;  ///< as ForbiddenAct::act
  uint64_t count = 0;
  MSGPACK_DEFINE_ARRAY(name, count)
};

/// One worker. What it runs and has lent is what the worker itself writes into its status page:
/// untrusted, and all 0 if the page can't be read.
struct ReportedWorker {
  uint64_t epoch = 0;
  int32_t processId = 0;
  std::string group;  ///< "shared", or the class to which the worker is dedicated
  int32_t slot = -1;  ///< -1: a spare, or a retiring worker
  std::string state;  ///< starting, serving, spare, retiring, dying
  uint64_t ageMilliseconds = 0;
  uint64_t completedCalls = 0;
  uint32_t clients = 0;        ///< attached
  uint64_t runningClient = 0;  ///< the client whose call runs; 0: the worker is idle
  uint64_t runningMilliseconds = 0;
  uint32_t waitingClients = 0;  ///< clients with a call that waits
  uint64_t privateBytes = 0;    ///< resident anonymous memory in excess of its zygote's
  uint64_t outputBytes = 0;     ///< shared memory for its results
  uint64_t lentBlocks = 0;      ///< results that clients hold
  uint64_t lentBytes = 0;
  /// In arenas of clients that are gone, to which objects of the worker still refer.
  uint64_t zombieBytes = 0;
  std::vector<ReportedCount> forbiddenActs;
  uint64_t processorMilliseconds = 0;  ///< used in its life, in user code and in the kernel
  uint32_t threads = 0;
  std::string runningModel;         ///< whose call runs; empty: none, or a call of no model
  std::vector<std::string> models;  ///< that it has loaded, for whichever client
  std::string gpu;                  ///< as in ForkWorker
  bool stopped = false;             ///< by a signal, not by a debugger
  uint32_t startedProcesses = 0;    ///< by its user code, and that have not ended
  uint32_t startedZombies = 0;      ///< by its user code, and for whose end nothing has waited
  uint64_t startedBytes = 0;        ///< private memory of startedProcesses
  MSGPACK_DEFINE_ARRAY(epoch, processId, group, slot, state, ageMilliseconds, completedCalls,
                       clients, runningClient, runningMilliseconds, waitingClients, privateBytes,
                       outputBytes, lentBlocks, lentBytes, zombieBytes, forbiddenActs,
                       processorMilliseconds, threads, runningModel, models, gpu, stopped,
                       startedProcesses, startedZombies, startedBytes)
};

/// One slot of a worker group, also without a worker.
struct ReportedSlot {
  std::string group;  ///< as ReportedWorker::group
  uint32_t slot = 0;
  uint64_t restarts = 0;  ///< how often a worker of the slot that died was replaced
  std::string lastDeath;  ///< why a worker of the slot died last; empty if none died
  uint64_t lastDeathMillisecondsAgo = 0;
  uint64_t quarantineMilliseconds = 0;  ///< that are left; 0: it is not in quarantine
  MSGPACK_DEFINE_ARRAY(group, slot, restarts, lastDeath, lastDeathMillisecondsAgo,
                       quarantineMilliseconds)
};

/// How often something took how long.
struct ReportedDurations {
  std::vector<uint64_t> bounds;  ///< in milliseconds, ascending
  /// One more than bounds: how many took at most the bound of the same index, and longer than the
  /// one before; last those that took longer than all bounds.
  std::vector<uint64_t> counts;
  uint64_t sumMilliseconds = 0;
  MSGPACK_DEFINE_ARRAY(bounds, counts, sumMilliseconds)
};

/// The workers that share a set of slots: what all of them have done since the supervisor's start,
/// those that have ended included. No count falls, except recentDeaths, quarantinedSlots and
/// quarantinedClients.
struct ReportedGroup {
  std::string name;  ///< as ReportedWorker::group
  uint64_t completedCalls = 0;
  uint64_t processorMilliseconds = 0;
  uint64_t restarts = 0;               ///< replacements of workers that died
  uint64_t recycled = 0;               ///< healthy workers that were replaced
  std::vector<ReportedCount> deaths;   ///< by cause, all causes
  uint64_t recentDeaths = 0;           ///< in the last Report::recentMilliseconds
  uint64_t quarantines = 0;            ///< of slots and spares
  uint64_t quarantinedSlots = 0;       ///< now
  std::vector<ReportedCount> denials;  ///< by the sandbox, by kind of act, all kinds
  ReportedDurations starts;            ///< of workers: from the fork request until it can serve
  uint64_t clientQuarantines = 0;      ///< of clients whose code ended workers
  uint64_t quarantinedClients = 0;     ///< now
  uint64_t spares = 0;                 ///< that the settings want
  MSGPACK_DEFINE_ARRAY(name, completedCalls, processorMilliseconds, restarts, recycled, deaths,
                       recentDeaths, quarantines, quarantinedSlots, denials, starts,
                       clientQuarantines, quarantinedClients, spares)
};

/// What all programs of a class have done since the supervisor's start, those that have left
/// included. No count falls.
struct ReportedClass {
  std::string name;                     ///< as ReportedClient::clientClass
  uint64_t connections = 0;             ///< programs that have attached
  uint64_t completedCalls = 0;          ///< without those that ended after the program had left
  uint64_t overdueCalls = 0;            ///< calls that ran past their deadline or limits.call_time
  std::vector<ReportedCount> refusals;  ///< by the limit that was met, all limits
  std::vector<ModelCalls> models;       ///< as the programs report them, by name
  MSGPACK_DEFINE_ARRAY(name, connections, completedCalls, overdueCalls, refusals, models)
};

/// One client: a connection of a program, which has one connection for each manager. Its process,
/// user and group are those that the kernel states; the program's name is its own statement.
struct ReportedClient {
  uint64_t number = 0;  ///< the supervisor's, as in workers' status pages and in the log
  int32_t processId = 0;
  uint32_t userId = 0;
  uint32_t groupId = 0;
  std::string program;
  std::string clientClass;  ///< class of the configuration; empty: none matches
  uint32_t share = 1;       ///< its turns in relation to those of a client with share 1
  std::string state;        ///< greeting, attached, quarantined, paused, draining
  uint64_t attachedMilliseconds = 0;
  uint32_t slots = 0;        ///< of its pool; several may share a worker
  uint64_t queuedCalls = 0;  ///< that no worker runs, as its rings and ReportCalls state
  uint64_t runningCalls = 0;
  uint64_t completedCalls = 0;  ///< since it attached, also of workers that have died
  uint64_t inputBytes = 0;      ///< segments of its input arena
  uint64_t packageBytes = 0;    ///< a package that several clients have counts fully for each
  uint64_t outputBytes = 0;     ///< segments for its results, in all workers
  uint64_t models = 0;          ///< packages, stored models and moved objects
  uint64_t overdueCalls = 0;    ///< calls that ran past their deadline
  uint64_t refusals = 0;        ///< requests that were refused because a limit was met
  uint64_t handles = 0;         ///< objects in workers to which the client's handles refer
  uint64_t handleBytes = 0;     ///< private memory of workers that these objects keep
  /// For how long the client gets no further worker; 0: it is not in quarantine.
  uint64_t quarantineMilliseconds = 0;
  std::string quarantine;  ///< why: the model, the number of deaths, the last one
  /// For how long calls have been queued while none completed, as far as reports show it.
  uint64_t stalledMilliseconds = 0;
  MSGPACK_DEFINE_ARRAY(number, processId, userId, groupId, program, clientClass, share, state,
                       attachedMilliseconds, slots, queuedCalls, runningCalls, completedCalls,
                       inputBytes, packageBytes, outputBytes, models, overdueCalls, refusals,
                       handles, handleBytes, quarantineMilliseconds, quarantine,
                       stalledMilliseconds)
};

/// One package, stored model or moved object, once for all clients that share its memory.
struct ReportedModel {
  std::string name;  ///< as the first of the clients named it
  uint64_t bytes = 0;
  /// XXH3-128 of the bytes, hexadecimal, as the client stated it; empty: it stated none.
  std::string digest;
  std::vector<uint64_t> clients;  ///< ReportedClient::number
  MSGPACK_DEFINE_ARRAY(name, bytes, digest, clients)
};

/// The state of a shared supervisor at one moment. Counters count from its start.
struct Report {
  static constexpr MessageType kType = MessageType::kReport;
  uint64_t token = 0;           ///< of the request
  std::string version;          ///< of isopoold
  int32_t processId = 0;        ///< in the supervisor's PID namespace, as all process ids here
  int32_t zygoteProcessId = 0;  ///< 0 while there is no zygote
  std::string address;          ///< of its socket
  std::string state;            ///< starting, serving, draining
  uint64_t uptimeMilliseconds = 0;
  std::string pythonVersion;  ///< of the workers; this and torch's are empty without a zygote
  std::string torchVersion;
  std::string sandbox;                          ///< the setting of this name
  std::vector<std::string> missingProtections;  ///< of the sandbox, not supported by this kernel
  uint64_t restarts = 0;                        ///< replacements of workers that died
  uint64_t recycled = 0;                        ///< healthy workers that were replaced
  uint64_t unfit = 0;  ///< of the restarts: workers that user code left unfit for other programs
  uint64_t zygoteRestarts = 0;
  uint64_t sharedBytes = 0;         ///< of all memory objects that the supervisor holds
  uint64_t refusedConnections = 0;  ///< refused at once, or ended because of what they sent
  std::vector<ReportedWorker> workers;
  std::vector<ReportedSlot> slots;
  std::vector<ReportedClient> clients;
  std::vector<ReportedModel> models;
  bool complete = true;  ///< false: the lists were cut, because a message can't hold all of them
  std::vector<ReportedGroup> groups;
  std::vector<ReportedClass> classes;
  uint64_t recentMilliseconds = 0;  ///< the time that ReportedGroup::recentDeaths covers
  uint64_t refusedPrograms = 0;     ///< of refusedConnections: by max_clients, max_clients_per_user
  uint64_t clientLimit = 0;         ///< max_clients
  uint64_t openDescriptors = 0;     ///< of isopoold
  uint64_t descriptorLimit = 0;     ///< how many it may have
  uint64_t clientDescriptors = 0;   ///< of openDescriptors: for packages and segments of clients
  std::vector<ReportedCount> lostLogLines;   ///< that the error stream did not take, by kind
  std::vector<ReportedCount> droppedOutput;  ///< lines of workers that were not logged, by reason
  uint64_t memoryUsed = 0;    ///< of the control group that is nearest to its limit, or the machine
  uint64_t memoryLimit = 0;   ///< of the same; 0: not known
  std::string successor;      ///< "starting", or why the last one did not serve; else empty
  std::string reloadFailure;  ///< why the last reload changed no setting; empty: it succeeded
  /// Settings that differ in the file since the last reload that succeeded, but need a restart.
  std::vector<std::string> needRestart;
  std::string lackOfDescriptors;  ///< why the next program is refused; empty: it is not
  MSGPACK_DEFINE_ARRAY(token, version, processId, zygoteProcessId, address, state,
                       uptimeMilliseconds, pythonVersion, torchVersion, sandbox, missingProtections,
                       restarts, recycled, unfit, zygoteRestarts, sharedBytes, refusedConnections,
                       workers, slots, clients, models, complete, groups, classes,
                       recentMilliseconds, refusedPrograms, clientLimit, openDescriptors,
                       descriptorLimit, clientDescriptors, lostLogLines, droppedOutput, memoryUsed,
                       memoryLimit, successor, reloadFailure, needRestart, lackOfDescriptors)
};

}  // namespace isopool::ipc
