// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <vector>

#include "ipc/control/message_type.h"

/// The messages between a shared supervisor and an operator (the command `isopool`), which sends
/// Hello first (ipc/control/client_messages.h). What holds for every message:
/// ipc/control/message_type.h.
namespace isopool::ipc {

// ---- operator -> supervisor -----------------------------------------------------------------

/// An operator requests a report. The supervisor answers with kReport and the same token.
struct RequestReport {
  static constexpr MessageType kType = MessageType::kRequestReport;
  uint64_t token = 0;
  MSGPACK_DEFINE_ARRAY(token)
};

// ---- supervisor -> operator -----------------------------------------------------------------

// The parts of a Report, and last the message itself.

struct ReportedCount {
  std::string name;
  uint64_t count = 0;
  MSGPACK_DEFINE_ARRAY(name, count)
};

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
  MSGPACK_DEFINE_ARRAY(epoch, processId, group, slot, state, ageMilliseconds, completedCalls,
                       clients, runningClient, runningMilliseconds, waitingClients, privateBytes,
                       outputBytes, lentBlocks, lentBytes, zombieBytes, forbiddenActs)
};

struct ReportedSlot {
  std::string group;
  uint32_t slot = 0;
  uint64_t restarts = 0;
  std::string lastDeath;  ///< why a worker of the slot died last; empty if none died
  uint64_t lastDeathMillisecondsAgo = 0;
  MSGPACK_DEFINE_ARRAY(group, slot, restarts, lastDeath, lastDeathMillisecondsAgo)
};

struct ReportedClient {
  uint64_t number = 0;
  int32_t processId = 0;
  uint32_t userId = 0;
  uint32_t groupId = 0;
  std::string program;
  std::string clientClass;  ///< class of the configuration; empty: none matches
  uint32_t share = 1;
  std::string state;  ///< greeting, attached, draining, leaving
  uint64_t attachedMilliseconds = 0;
  uint32_t slots = 0;
  uint64_t queuedCalls = 0;  ///< calls in its rings that no worker has taken yet
  uint64_t runningCalls = 0;
  uint64_t completedCalls = 0;
  uint64_t inputBytes = 0;
  uint64_t packageBytes = 0;
  uint64_t outputBytes = 0;
  uint64_t models = 0;
  uint64_t overdueCalls = 0;  ///< calls that ran past their deadline
  uint64_t refusals = 0;      ///< requests that were refused because a limit was met
  uint64_t handles = 0;       ///< objects in workers to which the client's handles refer
  uint64_t handleBytes = 0;   ///< private memory of workers that these objects keep
  MSGPACK_DEFINE_ARRAY(number, processId, userId, groupId, program, clientClass, share, state,
                       attachedMilliseconds, slots, queuedCalls, runningCalls, completedCalls,
                       inputBytes, packageBytes, outputBytes, models, overdueCalls, refusals,
                       handles, handleBytes)
};

struct ReportedModel {
  std::string name;
  uint64_t bytes = 0;
  std::string digest;  ///< hexadecimal
  std::vector<uint64_t> clients;
  MSGPACK_DEFINE_ARRAY(name, bytes, digest, clients)
};

/// The state of a shared supervisor at one moment.
struct Report {
  static constexpr MessageType kType = MessageType::kReport;
  uint64_t token = 0;
  std::string version;
  int32_t processId = 0;
  int32_t zygoteProcessId = 0;
  std::string address;
  std::string state;  ///< starting, serving, draining
  uint64_t uptimeMilliseconds = 0;
  std::string pythonVersion;
  std::string torchVersion;
  std::string sandbox;
  std::vector<std::string> missingProtections;  ///< of the sandbox, not supported by this kernel
  uint64_t restarts = 0;                        ///< replacements of workers that died
  uint64_t recycled = 0;                        ///< healthy workers that were replaced
  uint64_t unfit = 0;  ///< of the restarts: workers that user code left unfit for other programs
  uint64_t zygoteRestarts = 0;
  uint64_t sharedBytes = 0;  ///< of all memory objects that the supervisor holds
  uint64_t refusedConnections = 0;
  std::vector<ReportedWorker> workers;
  std::vector<ReportedSlot> slots;
  std::vector<ReportedClient> clients;
  std::vector<ReportedModel> models;
  bool complete = true;  ///< false: the lists were cut, because a message can't hold all of them
  MSGPACK_DEFINE_ARRAY(token, version, processId, zygoteProcessId, address, state,
                       uptimeMilliseconds, pythonVersion, torchVersion, sandbox, missingProtections,
                       restarts, recycled, unfit, zygoteRestarts, sharedBytes, refusedConnections,
                       workers, slots, clients, models, complete)
};

}  // namespace isopool::ipc
