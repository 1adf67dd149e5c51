// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log/log.h"
#include "supervisor/processes/restart_policy.h"

namespace isopool::supervisor {

/// Name of the worker group that serves all programs of a shared supervisor whose class has no
/// dedicated workers.
inline constexpr std::string_view kSharedGroup = "shared";

/// Settings for some clients of a shared supervisor. A client is in the first class that fits it.
struct ClientClass {
  std::string name;
  std::optional<uint32_t> userId;  ///< only clients of this user
  std::string program;             ///< only clients with this name; empty: any
  uint32_t share = 1;              ///< calls per call of a client with share 1, while both wait
  /// Workers for this class only, which it calls in place of the shared ones; 0: it calls those.
  uint32_t dedicatedWorkers = 0;
  /// Run time of one call; 0: no limit. Nothing: ClientLimits::callTime holds.
  std::optional<std::chrono::milliseconds> callTime;
};

/// Limits of one client of a shared supervisor. 0: no limit.
struct ClientLimits {
  uint64_t memory = 0;  ///< bytes of input segments, packages and output segments together
  uint32_t leases = 0;  ///< results that the client holds, per worker
  uint32_t calls = 0;   ///< calls in flight
  uint32_t models = 0;  ///< packages loaded
  std::chrono::milliseconds callTime{0};  ///< run time of one call
};

/// Thresholds at which the supervisor replaces a worker that still works. 0: no threshold.
struct Recycling {
  uint64_t calls = 0;                ///< completed by the worker
  std::chrono::milliseconds age{0};  ///< since the worker was started
  uint64_t memoryGrowth = 0;         ///< bytes of the worker's own memory, since the first call
  uint64_t memoryCap = 0;            ///< sandbox.memory; a worker is replaced before it is used up
  uint32_t jitterPercent = 10;       ///< each worker's thresholds vary by up to so much, either way
  /// How long clients may still use the replaced worker; then it is killed.
  std::chrono::milliseconds patience{60'000};
};

/// A setting, for clients to report what is in force and why.
struct SettingAndSource {
  std::string key;
  std::string value;
  std::string source;
};

/// Every value that the supervisor uses, with its default. Settings (settings.h) makes one from
/// flags, ISOPOOL_* environment variables and a file; base/settings/setting_table.cc describes all
/// settings, those without a comment here, too. A plain value: each owner has a copy.
struct Options {
  bool privatePool = false;
  int controlFd = 3;   ///< of a private supervisor: the program's control socket
  int lifelineFd = 4;  ///< of a private supervisor: read end of the program's lifeline
  /// Zygote and workers write to pipes, and isopoold logs each line; otherwise they have isopoold's
  /// own standard streams.
  bool collectOutput = false;
  uint64_t outputQuota = 0;  ///< bytes of these lines in an hour; 0: no limit
  std::string listen;        ///< path of the socket of a shared supervisor
  std::string socketGroup;   ///< its members may connect, too; empty: only the same user and root
  std::string logFile;       ///< of a shared supervisor; empty: the error stream
  uint32_t workers = 0;      ///< of a shared supervisor; at least 1 after parsing
  std::string worker;        ///< path of the isopool-worker executable
  uint32_t spares = 1;       ///< per worker group, and per GPU if `gpus` names some
  std::vector<std::string> gpus;  ///< each worker sees one of these; empty: what isopoold sees
  RestartLimits restart;
  uint64_t outputArena = 4u << 20;  ///< bytes of a channel's first output segment; whole pages
  uint64_t outputArenaLimit = uint64_t{4} << 30;      ///< bytes of all of a channel's segments
  std::chrono::milliseconds zygoteTimeout{120'000};   ///< from its start until it is ready
  std::chrono::milliseconds forkTimeout{5'000};       ///< between two answers of the zygote
  std::chrono::milliseconds workerTimeout{30'000};    ///< until it is ready, or has attached
  std::chrono::milliseconds stoppedTimeout{30'000};   ///< of a worker, by a signal; 0: no limit
  std::chrono::milliseconds handshakeTimeout{5'000};  ///< from a client's connection to its Hello
  std::chrono::milliseconds drainTimeout{30'000};     ///< for calls in flight after SIGTERM
  /// How long a worker may still run a call past its deadline, or of a client that has left.
  std::chrono::milliseconds grace{500};
  uint32_t maxClients = 1024;
  uint32_t maxClientsPerUser = 0;  ///< 0: no limit
  ClientLimits limits;
  Recycling recycling;
  std::vector<ClientClass> classes;
  uint64_t workerProcesses = 0;     ///< sandbox.processes; 0: no limit of its own
  std::string sandbox = "default";  ///< none, default, strict: see docs/sandbox.md
  /// The folder in which workers may make their own folders (WorkerFolders); empty: none.
  std::string workerFolders;
  /// NAME=VALUE for the zygote and the workers: the settings that they read, and [environment].
  std::vector<std::string> workerEnvironment;
  std::vector<SettingAndSource> settings;  ///< all of this kind of supervisor
  bool noKill = false;  ///< for debuggers: zygote, fork and worker time-outs are disabled
  base::LogLevel logLevel = base::LogLevel::kWarning;
  base::LogFormat logFormat = base::LogFormat::kAuto;
};

/// So long may a successor take until it serves. A zygote that is not ready within zygote_timeout
/// ends its supervisor: one that takes longer hangs, and is killed.
inline std::chrono::milliseconds successorTimeout(const Options& options) {
  constexpr std::chrono::milliseconds kLonger(10'000);
  return options.zygoteTimeout + kLonger;
}

}  // namespace isopool::supervisor
