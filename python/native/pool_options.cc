// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/pool_options.h"

#include <pybind11/stl.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "isopool/options.h"
#include "python/native/callback.h"
#include "python/native/python_entry.h"
#include "python/native/times.h"
#include "python/native/unlocked.h"
#include "python/native/values.h"

namespace isopool::python {

namespace py = pybind11;

namespace {

constexpr std::pair<SandboxLevel, const char*> kLevels[] = {{SandboxLevel::kNone, "none"},
                                                            {SandboxLevel::kDefault, "default"},
                                                            {SandboxLevel::kStrict, "strict"}};

const char* nameOf(SandboxLevel level) {
  for (const auto& [each, name] : kLevels) {
    if (each == level) return name;
  }
  return "";
}

SandboxLevel levelOf(const std::string& name) {
  for (const auto& [level, each] : kLevels) {
    if (name == each) return level;
  }
  throw py::value_error("sandbox is none, default or strict, not " + name);
}

// The levels of Python's module logging, so that logging.getLogger("pool").log is a logger.
int numberOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 10;
    case LogLevel::kInfo:
      return 20;
    case LogLevel::kWarning:
      return 30;
    case LogLevel::kError:
      break;
  }
  return 40;
}

struct Logger {
  Callback callback;

  void operator()(LogLevel level, std::string_view line) const {
    const PythonEntry entry;
    if (!entry) return;
    try {
      (*callback)(numberOf(level), toText(line));
    } catch (py::error_already_set& raised) {
      raised.discard_as_unraisable(*callback);
    }
  }
};

py::object loggerOf(const PoolOptions& options) {
  const auto* own = options.logger.target<Logger>();
  return own != nullptr ? py::object(*own->callback) : py::object(py::none());
}

void setLoggerOf(PoolOptions& options, const std::optional<py::function>& logger) {
  options.logger = nullptr;
  if (logger) options.logger = Logger{makeCallback(*logger)};
}

[[noreturn]] void throwNoSuchField(const py::object& made, const std::string& name) {
  const py::object kind = made.attr("__class__");
  py::list fields;
  for (const py::handle& each : py::list(made.attr("__dir__")())) {
    if (each.cast<std::string>().front() != '_') fields.append(each);
  }
  const py::list near = py::module_::import("difflib").attr("get_close_matches")(name, fields, 1);
  const std::string whole = kind.attr("__name__").cast<std::string>();
  throw py::type_error(whole + " has no field " + name +
                       (near.empty() ? ": see help(isopool." + whole + ")"
                                     : "; the nearest is " + near[0].cast<std::string>()));
}

std::string typeNameOf(const py::handle& value) {
  return py::type::handle_of(value).attr("__qualname__").cast<std::string>();
}

// Makes an object from its fields by name. Throws pybind11::type_error for one that does not exist
// and for a value of another type.
template <typename Options>
Options fromFields(const py::kwargs& fields) {
  const py::object made = py::cast(Options());
  for (const auto& [name, value] : fields) {
    const std::string field = py::str(name);
    if (!py::hasattr(made, name)) throwNoSuchField(made, field);
    try {
      made.attr(name) = value;
    } catch (py::error_already_set& error) {
      // The text that pybind11 has for it does not name the field.
      if (!error.matches(PyExc_TypeError)) throw;
      const std::string is = typeNameOf(made.attr(name));
      const std::string got = typeNameOf(value);
      const bool tells = is != got && !py::object(made.attr(name)).is_none();
      throw py::type_error(field + " can't be " + std::string(py::repr(value)) + ", of type " +
                           got + (tells ? ": it is of type " + is : ""));
    }
  }
  return made.cast<Options>();
}

/// A field that is a time: seconds or a timedelta when it is set, seconds when it is read.
template <typename Options>
void defineTime(py::class_<Options>& kind, const char* name,
                std::chrono::milliseconds Options::*field, const std::string& what) {
  kind.def_property(
      name,
      [field](const Options& self) { return std::chrono::duration<double>(self.*field).count(); },
      [field, name](Options& self, const py::object& time) {
        self.*field = std::chrono::duration_cast<std::chrono::milliseconds>(timeOf(time, name));
      },
      ("Seconds, or a timedelta when it is set. " + what).c_str());
}

}  // namespace

void definePoolOptions(py::module_& module) {
  py::class_<Recycling> recycling(
      module, "Recycling", "When a worker that still works is replaced. 0: not for this reason.");
  recycling.def(py::init(&fromFields<Recycling>))
      .def_readwrite("calls", &Recycling::calls, "Completed by the worker.")
      .def_readwrite("memory_growth", &Recycling::memoryGrowth,
                     "Bytes by which the worker's own memory grew since its first call.")
      .def_readwrite(
          "jitter_percent", &Recycling::jitterPercent,
          "By which each worker's thresholds differ, so that not all are replaced at once.");
  defineTime(recycling, "age", &Recycling::age, "Since the worker was started.");
  defineTime(recycling, "patience", &Recycling::patience,
             "How long sessions may still use a worker that was replaced; then it is killed.");

  py::class_<PoolOptions> options(module, "PoolOptions",
                                  "Everything that can be chosen for one pool.");
  options.def(py::init(&fromFields<PoolOptions>))
      .def_readwrite("workers", &PoolOptions::workers,
                     "Worker processes; 0: one for each processor that this program may run on.")
      .def_readwrite("shared_supervisor", &PoolOptions::sharedSupervisor,
                     "Path of a shared supervisor's socket; '': a private supervisor.")
      .def_readwrite("program_name", &PoolOptions::programName,
                     "The name under which a shared supervisor reports this program.")
      .def_readwrite("python", &PoolOptions::python,
                     "The interpreter whose packages workers use; '': that of this program.")
      .def_readwrite(
          "python_paths", &PoolOptions::pythonPaths,
          "Folders that every worker appends to sys.path. Pool: those that this program has.")
      .def_readwrite("preload_modules", &PoolOptions::preloadModules,
                     "Modules that are imported once for all workers, before the first fork.")
      .def_readwrite("preload_libraries", &PoolOptions::preloadLibraries,
                     "Libraries of C++ operators that are loaded once for all workers.")
      .def_readwrite("worker_preload_libraries", &PoolOptions::workerPreloadLibraries,
                     "Libraries of C++ operators that each worker loads when it starts.")
      .def_readwrite("threads_per_worker", &PoolOptions::threadsPerWorker,
                     "Threads that the libraries of one worker may use within one operation.")
      .def_readwrite("gpus", &PoolOptions::gpus,
                     "Each worker sees only one of these GPUs, in turns: names as in\n"
                     "CUDA_VISIBLE_DEVICES. []: each worker sees those that this process may use.")
      .def_readwrite("variables", &PoolOptions::variables,
                     "Environment variables of the pool's processes, besides the program's own.")
      .def_readwrite("allow_other_python", &PoolOptions::allowOtherPython,
                     "Opens packages that another version of Python made.")
      .def_readwrite(
          "spares", &PoolOptions::spares,
          "Workers that are kept ready to take over from one that dies, for each of gpus:\n"
          "0 to 64.")
      .def_readwrite(
          "restart_limit", &PoolOptions::restartLimit,
          "So many deaths of one slot's workers within restart_window, each before it completed a\n"
          "call, leave the slot empty for the time of quarantine.")
      .def_readwrite("recycle", &PoolOptions::recycle,
                     "When a worker that still works is replaced: a Recycling.")
      .def_readwrite("output_arena", &PoolOptions::outputArena,
                     "Bytes of shared memory that a worker has for its results from the start.")
      .def_readwrite("output_arena_limit", &PoolOptions::outputArenaLimit,
                     "Bytes of shared memory that a worker may get for its results in all.")
      .def_readwrite("worker_memory", &PoolOptions::workerMemory,
                     "Bytes of private memory that one worker may have; 0: no limit.")
      .def_property(
          "sandbox", [](const PoolOptions& self) { return nameOf(self.sandbox); },
          [](PoolOptions& self, const std::string& name) { self.sandbox = levelOf(name); },
          "How strictly the kernel restricts workers: none, default or strict (docs/sandbox.md).")
      .def_readwrite("sandbox_read", &PoolOptions::sandboxRead,
                     "Folders that workers of the sandbox 'strict' may read, besides Python's own.")
      .def_readwrite("sandbox_write", &PoolOptions::sandboxWrite,
                     "Folders that workers of the sandbox 'strict' may write.")
      .def_readwrite("sandbox_network", &PoolOptions::sandboxNetwork,
                     "Workers of the sandbox 'strict' may use the network.")
      .def_readwrite("worker_files", &PoolOptions::workerFiles,
                     "Files that one worker may have open; 0: the system's limit.")
      .def_readwrite(
          "worker_processes", &PoolOptions::workerProcesses,
          "Processes and threads that the workers' user may have; 0: the system's limit.")
      .def_property(
          "logger", &loggerOf, &setLoggerOf,
          "logger(level, text) gets the events of the pool and what its workers print, "
          "with the\nlevels of the module logging: logging.getLogger('pool').log is one. "
          "None: the events\nare dropped, and workers print where the program does. It is "
          "called on threads of the\nlibrary, must return soon and must not call a pool.")
      .def_readwrite("supervisor_log_level", &PoolOptions::supervisorLogLevel,
                     "What the supervisor logs: debug, info, warning, error or off.")
      .def_readwrite("supervisor_log_format", &PoolOptions::supervisorLogFormat,
                     "Of these lines: auto, text or json.")
      .def_readwrite("core_dumps", &PoolOptions::coreDumps, "Workers may dump core.")
      .def_readwrite(
          "no_kill", &PoolOptions::noKill,
          "For debuggers: no process is killed because it is slow, and deadlines are off.")
      .def_readwrite("supervisor_program", &PoolOptions::supervisorProgram,
                     "The isopoold to start; '': the installed one.")
      .def_readwrite("worker_program", &PoolOptions::workerProgram,
                     "The isopool-worker to start; '': the installed one.");
  defineTime(options, "restart_window", &PoolOptions::restartWindow, "See restart_limit.");
  defineTime(options, "quarantine", &PoolOptions::quarantine, "See restart_limit.");
  defineTime(options, "zygote_timeout", &PoolOptions::zygoteTimeout,
             "How long Python and torch may take to start.");
  defineTime(options, "fork_timeout", &PoolOptions::forkTimeout,
             "How long the fork of one worker may take.");
  defineTime(options, "worker_timeout", &PoolOptions::workerTimeout,
             "How long a forked worker may take until it serves.");
  defineTime(options, "stopped_timeout", &PoolOptions::stoppedTimeout,
             "How long a signal may stop a worker until it is replaced; 0: no limit.");
  defineTime(options, "cleanup_timeout", &PoolOptions::cleanupTimeout,
             "How long a worker may run clean-up code that no thread waits for; 0: no limit.");
  defineTime(options, "reconnect", &PoolOptions::reconnect,
             "How long calls wait while a shared supervisor is restarted; 0: not at all.");
}

}  // namespace isopool::python
