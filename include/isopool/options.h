// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "isopool/environment.h"
#include "isopool/observation.h"

namespace isopool {

/// How strictly the kernel restricts a worker: docs/sandbox.md describes the levels.
enum class SandboxLevel { kNone, kDefault, kStrict };

/// When a worker that still works is replaced by a fresh one, between two calls and without a
/// failed call. 0: not for this reason. A spare takes its slot; without PoolOptions::spares one is
/// started for each replacement.
struct Recycling {
  uint64_t calls = 0;                ///< completed by the worker (recycle.calls)
  std::chrono::milliseconds age{0};  ///< since the worker was started (recycle.age)
  /// Bytes by which the worker's own memory grew since its first call (recycle.memory_growth).
  uint64_t memoryGrowth = 0;
  /// Per cent by which each worker's thresholds differ, so that not all workers are replaced at
  /// once (recycle.jitter).
  uint32_t jitterPercent = 10;
  /// How long sessions and Objs may still use a worker that was replaced; then it is killed
  /// (recycle.patience).
  std::chrono::milliseconds patience{std::chrono::minutes(1)};
};

/// Everything that can be chosen for one pool. A plain value: fill in what differs from the
/// defaults and make an InterpreterManager from it. Two pools of a program may differ in every
/// field; pools that agree in all of them share one private supervisor.
///
/// Who wins: an operator can override every field that has a name in parentheses, without a change
/// of the program: by the variable that docs/configuration.md lists for that name, or by the file
/// that ISOPOOL_CONFIG names. The order is: variable, file, PoolOptions, default.
/// InterpreterManager::options() returns what is in force and where it came from.
///
/// With a shared supervisor, its operator decides what concerns the workers. If `sharedSupervisor`
/// is set, a field that the supervisor would ignore throws Error. If ISOPOOL_SOCKET makes the
/// manager attach to a shared supervisor, such fields have no effect. The comments mark the fields
/// that hold for shared supervisors, too.
///
/// Invalid values throw Error, which names the field, before any process is started.
struct PoolOptions {
  // ---- Which workers

  /// The number of workers, so of calls that run at the same time: 1 to 1024. 0: one for each
  /// processor that this program may run on, in a container no more than its control group has
  /// processor time. Shared supervisors, too: see the constructor.
  size_t workers = 0;
  /// Path of a shared supervisor's socket. Empty: ISOPOOL_SOCKET, or a private supervisor.
  std::string sharedSupervisor;
  /// The name under which a shared supervisor reports this program and finds its class. Empty:
  /// ISOPOOL_PROGRAM, or the program's name as ps shows it. Only for shared supervisors.
  std::string programName;
  /// Prepares each worker. Null: NoopEnvironment. Shared supervisors, too.
  std::shared_ptr<Environment> environment;

  // ---- Python

  /// The interpreter whose site-packages the workers use (python). It must have the Python version
  /// and the torch that isopool was built with. Empty: the interpreter of that build.
  std::string python;
  /// Folders that every worker appends to sys.path, after those of `environment`. Shared
  /// supervisors, too.
  std::vector<std::string> pythonPaths;
  /// Modules that are imported once for all workers (preload_modules). A module that starts a
  /// thread is refused.
  std::vector<std::string> preloadModules;
  /// Libraries of C++ operators that are loaded once for all workers (preload_libs): paths, or
  /// names that the loader finds.
  std::vector<std::string> preloadLibraries;
  /// The same, but each worker loads them when it starts (worker_preload_libs): for libraries that
  /// start threads or open devices.
  std::vector<std::string> workerPreloadLibraries;
  /// Threads that the libraries of one worker may use within one operation (threads): of torch,
  /// numpy, ONNX Runtime and others. 1 to 1024.
  uint32_t threadsPerWorker = 1;
  /// Each worker sees only one of these GPUs, in turns (gpus): names as in CUDA_VISIBLE_DEVICES,
  /// "0" or "GPU-UUID". Empty: each worker sees those that this process may use; strict workers
  /// see none, and need sandboxNetwork for those that they see.
  std::vector<std::string> gpus;
  /// Environment variables of this pool's processes, in addition to the program's own and in place
  /// of those with the same name. Not for ISOPOOL_* variables, which are fields here.
  std::map<std::string, std::string> variables;
  /// Opens packages that another Python version made (ISOPOOL_ALLOW_OTHER_PYTHON). Their pickles
  /// usually load; their bytecode is never used. Shared supervisors, too.
  bool allowOtherPython = false;

  // ---- Replacement of workers

  /// Workers that are kept ready to take over from one that dies (spares), for each of `gpus`: 0 to
  /// 64.
  uint32_t spares = 1;
  /// So many deaths of one slot's workers, each before it completed a call (restart_limit), ...
  uint32_t restartLimit = 10;
  /// ... within this time (restart_window) ...
  std::chrono::milliseconds restartWindow{std::chrono::seconds(30)};
  /// ... leave the slot empty for this long (quarantine). Then one more worker is tried.
  std::chrono::milliseconds quarantine{std::chrono::seconds(30)};
  Recycling recycle;

  // ---- Time limits

  /// How long Python and torch may take to start (zygote_timeout).
  std::chrono::milliseconds zygoteTimeout{std::chrono::minutes(2)};
  /// How long the fork of one worker may take (fork_timeout).
  std::chrono::milliseconds forkTimeout{std::chrono::seconds(5)};
  /// How long a forked worker may take until it serves, and a worker of a shared supervisor until
  /// it has attached or detached a program (worker_timeout).
  std::chrono::milliseconds workerTimeout{std::chrono::seconds(30)};
  /// How long a signal (SIGSTOP) may stop a worker (stopped_timeout). Then the worker is killed and
  /// replaced, and its call throws WorkerLost. 0: no limit.
  std::chrono::milliseconds stoppedTimeout{std::chrono::seconds(30)};
  /// How long a worker may run clean-up code that no thread waits for: the `__del__` of a released
  /// Obj, the `finally` of a closed stream, an unload (ISOPOOL_CLEANUP_TIMEOUT). Then it is killed.
  /// 0: no limit. Shared supervisors, too.
  std::chrono::milliseconds cleanupTimeout{std::chrono::seconds(30)};
  /// Only for shared supervisors: how long calls wait while the supervisor is being restarted
  /// (ISOPOOL_RECONNECT), counted from the moment the manager lost it, and before that from the
  /// supervisor's notice that it is about to end. The manager attaches again by itself, see
  /// SupervisorLost, and tries that as long as it lives: after this time calls throw SupervisorLost
  /// until it has succeeded. 0: it does not attach again.
  std::chrono::milliseconds reconnect{std::chrono::seconds(30)};

  // ---- Memory

  /// Bytes of shared memory that a worker has for its results from the start (output_arena), ...
  uint64_t outputArena = 4u << 20;
  /// ... and may get in all (output_arena_limit); 4 GiB: or a quarter of the memory, if less.
  uint64_t outputArenaLimit = uint64_t{4} << 30;
  /// Bytes of private memory that one worker may have (sandbox.memory). 0: no limit.
  uint64_t workerMemory = 0;

  // ---- Sandbox

  SandboxLevel sandbox = SandboxLevel::kDefault;  ///< (sandbox.level)
  /// Folders that strict workers may read, besides Python's own (sandbox.read), and write
  /// (sandbox.write).
  std::vector<std::string> sandboxRead;
  std::vector<std::string> sandboxWrite;
  bool sandboxNetwork = false;  ///< strict workers may use the network (sandbox.network)
  /// Files that one worker may have open (sandbox.files), and processes and threads that the
  /// workers' user may have (sandbox.processes). 0: the system's limit.
  uint32_t workerFiles = 0;
  uint32_t workerProcesses = 0;

  // ---- Diagnostics

  /// Receives the events of this pool in place of the function that setLogger() has set. What
  /// setLogger() states holds for it, too. Shared supervisors, too.
  std::function<void(LogLevel, std::string_view)> logger;
  /// What the supervisor logs, from this level up (log_level): "debug", "info", "warning", "error"
  /// or "off"; and, without a logger, the format of these lines on the error stream (log_format):
  /// "auto", "text" or "json".
  std::string supervisorLogLevel = "warning";
  std::string supervisorLogFormat = "auto";
  bool coreDumps = false;  ///< workers may dump core (core_dumps)
  /// For debuggers: no process is killed because it is slow, and deadlines are off (no_kill).
  bool noKill = false;
  /// The programs to start, for tests and packagers: isopoold (ISOPOOL_SUPERVISOR) and
  /// isopool-worker (worker_program). Empty: those that were installed with this library.
  std::string supervisorProgram;
  std::string workerProgram;
};

/// One setting of a pool as it is in force.
struct PoolSetting {
  std::string name;   ///< as in docs/configuration.md: "spares"
  std::string value;  ///< as an operator would write it: "2", "30s", "4MiB"
  /// "program" (its PoolOptions), "default", "environment ISOPOOL_SPARES", "file PATH:LINE", "flag
  /// --spares"; the last three may be those of a shared supervisor.
  std::string source;
};

}  // namespace isopool
