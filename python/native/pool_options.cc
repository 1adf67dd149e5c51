// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/pool_options.h"

#include <pybind11/stl.h>

#include <chrono>
#include <string>
#include <utility>

#include "isopool/options.h"
#include "python/native/times.h"

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

// Makes an object from its fields by name. Throws pybind11::type_error for one that does not exist.
template <typename Options>
Options fromFields(const py::kwargs& fields) {
  const py::object made = py::cast(Options());
  for (const auto& [name, value] : fields) {
    if (!py::hasattr(made, name)) {
      const std::string kind = made.attr("__class__").attr("__name__").cast<std::string>();
      throw py::type_error(kind + " has no field " + std::string(py::str(name)));
    }
    made.attr(name) = value;
  }
  return made.cast<Options>();
}

/// A field that is a time: seconds or a timedelta when it is set, seconds when it is read.
template <typename Options>
void defineTime(py::class_<Options>& kind, const char* name,
                std::chrono::milliseconds Options::*field) {
  kind.def_property(
      name,
      [field](const Options& self) { return std::chrono::duration<double>(self.*field).count(); },
      [field, name](Options& self, const py::object& time) {
        self.*field = std::chrono::duration_cast<std::chrono::milliseconds>(timeOf(time, name));
      });
}

}  // namespace

void definePoolOptions(py::module_& module) {
  py::class_<Recycling> recycling(
      module, "Recycling", "When a worker that still works is replaced. 0: not for this reason.");
  recycling.def(py::init(&fromFields<Recycling>))
      .def_readwrite("calls", &Recycling::calls)
      .def_readwrite("memory_growth", &Recycling::memoryGrowth)
      .def_readwrite("jitter_percent", &Recycling::jitterPercent);
  defineTime(recycling, "age", &Recycling::age);
  defineTime(recycling, "patience", &Recycling::patience);

  py::class_<PoolOptions> options(module, "PoolOptions",
                                  "Everything that can be chosen for one pool.");
  options.def(py::init(&fromFields<PoolOptions>))
      .def_readwrite("workers", &PoolOptions::workers)
      .def_readwrite("shared_supervisor", &PoolOptions::sharedSupervisor)
      .def_readwrite("program_name", &PoolOptions::programName)
      .def_readwrite("python", &PoolOptions::python)
      .def_readwrite("python_paths", &PoolOptions::pythonPaths)
      .def_readwrite("preload_modules", &PoolOptions::preloadModules)
      .def_readwrite("preload_libraries", &PoolOptions::preloadLibraries)
      .def_readwrite("worker_preload_libraries", &PoolOptions::workerPreloadLibraries)
      .def_readwrite("threads_per_worker", &PoolOptions::threadsPerWorker)
      .def_readwrite("variables", &PoolOptions::variables)
      .def_readwrite("allow_other_python", &PoolOptions::allowOtherPython)
      .def_readwrite("spares", &PoolOptions::spares)
      .def_readwrite("restart_limit", &PoolOptions::restartLimit)
      .def_readwrite("recycle", &PoolOptions::recycle)
      .def_readwrite("output_arena", &PoolOptions::outputArena)
      .def_readwrite("output_arena_limit", &PoolOptions::outputArenaLimit)
      .def_readwrite("worker_memory", &PoolOptions::workerMemory)
      .def_property(
          "sandbox", [](const PoolOptions& self) { return nameOf(self.sandbox); },
          [](PoolOptions& self, const std::string& name) { self.sandbox = levelOf(name); })
      .def_readwrite("sandbox_read", &PoolOptions::sandboxRead)
      .def_readwrite("sandbox_write", &PoolOptions::sandboxWrite)
      .def_readwrite("sandbox_network", &PoolOptions::sandboxNetwork)
      .def_readwrite("worker_files", &PoolOptions::workerFiles)
      .def_readwrite("worker_processes", &PoolOptions::workerProcesses)
      .def_readwrite("supervisor_log_level", &PoolOptions::supervisorLogLevel)
      .def_readwrite("supervisor_log_format", &PoolOptions::supervisorLogFormat)
      .def_readwrite("core_dumps", &PoolOptions::coreDumps)
      .def_readwrite("no_kill", &PoolOptions::noKill)
      .def_readwrite("supervisor_program", &PoolOptions::supervisorProgram)
      .def_readwrite("worker_program", &PoolOptions::workerProgram);
  defineTime(options, "restart_window", &PoolOptions::restartWindow);
  defineTime(options, "quarantine", &PoolOptions::quarantine);
  defineTime(options, "zygote_timeout", &PoolOptions::zygoteTimeout);
  defineTime(options, "fork_timeout", &PoolOptions::forkTimeout);
  defineTime(options, "worker_timeout", &PoolOptions::workerTimeout);
  defineTime(options, "cleanup_timeout", &PoolOptions::cleanupTimeout);
  defineTime(options, "reconnect", &PoolOptions::reconnect);
}

}  // namespace isopool::python
