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

/// The workers of all programs of a shared supervisor whose class has none of its own.
inline constexpr std::string_view kSharedGroup = "shared";

/// A kind of client that the operator treats specially: the first class that fits a client is its.
struct ClientClass {
  std::string name;
  std::optional<uint32_t> userId;  ///< only clients of this user
  std::string program;             ///< only clients with this name; empty: any
  uint32_t share = 1;              ///< calls for one of a client with share 1, where both wait
  uint32_t dedicatedWorkers = 0;   ///< workers that serve this class alone, beside the shared ones
};

/// What one client of a shared supervisor may have. 0: no limit.
struct ClientLimits {
  uint64_t memory = 0;  ///< bytes of input segments, packages and output segments together
  uint32_t leases = 0;  ///< results held, per worker
  uint32_t calls = 0;   ///< calls in flight
  uint32_t models = 0;  ///< packages loaded
  std::chrono::milliseconds callTime{0};  ///< that one call may run
};

/// When a shared worker is replaced on purpose. 0: never for that.
struct Recycling {
  uint64_t calls = 0;
  std::chrono::milliseconds age{0};
  uint64_t memoryGrowth = 0;  ///< bytes of resident anonymous memory more than after its first call
  uint32_t jitterPercent = 10;  ///< each life's thresholds vary by up to so much, either way
  std::chrono::milliseconds patience{
      60'000};  ///< for what still uses the old one; then it is killed
};

/// What isopoold was told, by flags, ISOPOOL_* environment variables and a file, and what it takes
/// where it was told nothing. supervisor/config/settings.h has the one table of all of them.
struct Options {
  bool privatePool = false;
  int controlFd = 3;
  int lifelineFd = 4;
  std::string listen;       ///< path of the socket of a shared supervisor
  std::string socketGroup;  ///< whose members may connect too; empty: only the same user and root
  uint32_t workers = 0;     ///< of a shared supervisor; at least 1 after parsing
  std::string worker;       ///< path of the isopool-worker executable
  uint32_t spares = 1;
  RestartLimits restart;
  uint64_t outputArena = 4u << 20;
  uint64_t outputArenaLimit = uint64_t{4} << 30;
  std::chrono::milliseconds zygoteTimeout{120'000};
  std::chrono::milliseconds forkTimeout{5'000};
  std::chrono::milliseconds workerTimeout{30'000};
  std::chrono::milliseconds handshakeTimeout{5'000};  ///< for a client to say who it is
  std::chrono::milliseconds drainTimeout{30'000};     ///< for calls in flight after SIGTERM
  /// How long a shared worker may go on with a call past its deadline, or of a client that is gone.
  std::chrono::milliseconds grace{500};
  uint32_t maxClients = 1024;
  ClientLimits limits;
  Recycling recycling;
  std::vector<ClientClass> classes;
  std::string sandbox = "default";  ///< none, default, strict: see docs/sandbox.md
  /// Where workers may make folders of their own (WorkerFolders); empty: nowhere.
  std::string workerFolders;
  /// NAME=VALUE for the zygote and the workers: the settings that are theirs, and [environment].
  std::vector<std::string> workerEnvironment;
  bool noKill = false;  ///< the time-outs are as good as none
  base::LogLevel logLevel = base::LogLevel::kWarning;
  base::LogFormat logFormat = base::LogFormat::kAuto;
};

}  // namespace isopool::supervisor
