// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/pool_text.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "isopool/batch.h"

namespace isopool::batch {

namespace {

using base::Json;
using std::chrono::milliseconds;

constexpr const char* kVariables = "variables";

/// Calls `visit` with name and member of each option that is stored as it is.
template <typename Visit>
void forEachOption(Visit&& visit) {
  visit("workers", &PoolOptions::workers);
  visit("shared_supervisor", &PoolOptions::sharedSupervisor);
  visit("program_name", &PoolOptions::programName);
  visit("python", &PoolOptions::python);
  visit("python_paths", &PoolOptions::pythonPaths);
  visit("preload_modules", &PoolOptions::preloadModules);
  visit("preload_libraries", &PoolOptions::preloadLibraries);
  visit("worker_preload_libraries", &PoolOptions::workerPreloadLibraries);
  visit("threads_per_worker", &PoolOptions::threadsPerWorker);
  visit("gpus", &PoolOptions::gpus);
  visit("allow_other_python", &PoolOptions::allowOtherPython);
  visit("spares", &PoolOptions::spares);
  visit("restart_limit", &PoolOptions::restartLimit);
  visit("restart_window", &PoolOptions::restartWindow);
  visit("quarantine", &PoolOptions::quarantine);
  visit("zygote_timeout", &PoolOptions::zygoteTimeout);
  visit("fork_timeout", &PoolOptions::forkTimeout);
  visit("worker_timeout", &PoolOptions::workerTimeout);
  visit("stopped_timeout", &PoolOptions::stoppedTimeout);
  visit("cleanup_timeout", &PoolOptions::cleanupTimeout);
  visit("reconnect", &PoolOptions::reconnect);
  visit("output_arena", &PoolOptions::outputArena);
  visit("output_arena_limit", &PoolOptions::outputArenaLimit);
  visit("worker_memory", &PoolOptions::workerMemory);
  visit("sandbox", &PoolOptions::sandbox);
  visit("sandbox_read", &PoolOptions::sandboxRead);
  visit("sandbox_write", &PoolOptions::sandboxWrite);
  visit("sandbox_network", &PoolOptions::sandboxNetwork);
  visit("worker_files", &PoolOptions::workerFiles);
  visit("worker_processes", &PoolOptions::workerProcesses);
}

template <typename Value>
Json jsonOf(const Value& value) {
  if constexpr (std::is_same_v<Value, milliseconds>) {
    return value.count();
  } else if constexpr (std::is_enum_v<Value>) {
    return static_cast<int>(value);
  } else {
    return value;
  }
}

template <typename Value>
Value valueOf(const Json& json) {
  if constexpr (std::is_same_v<Value, milliseconds>) {
    return milliseconds(json.get<int64_t>());
  } else if constexpr (std::is_enum_v<Value>) {
    return static_cast<Value>(json.get<int>());
  } else {
    return json.get<Value>();
  }
}

}  // namespace

Json storedPool(const PoolOptions& pool) {
  Json stored = Json::object();
  forEachOption([&](const char* name, auto member) { stored[name] = jsonOf(pool.*member); });
  std::vector<std::string> names;
  for (const auto& [name, value] : pool.variables) names.push_back(name);
  stored[kVariables] = names;
  return stored;
}

PoolOptions poolOf(const Json& stored, const PoolOptions& now) {
  const PoolOptions defaults;
  PoolOptions pool = now;
  forEachOption([&](const char* name, auto member) {
    using Value = std::remove_cvref_t<decltype(pool.*member)>;
    const auto found = stored.find(name);
    if (found != stored.end() && now.*member == defaults.*member) {
      pool.*member = valueOf<Value>(*found);
    }
  });
  return pool;
}

void requireVariables(const Json& stored, const PoolOptions& now) {
  const auto names = stored.find(kVariables);
  if (names == stored.end()) return;
  for (const std::string name : *names) {
    if (now.variables.count(name) != 0) continue;
    throw BatchRefused("the run had the variable " + name +
                       " (PoolOptions::variables), whose value is not stored: give it again");
  }
}

}  // namespace isopool::batch
