// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/statistics.h"

#include <pybind11/stl.h>

#include <chrono>

#include "isopool/isopool.h"

namespace isopool::python {

namespace py = pybind11;

namespace {

const char* nameOf(WorkerStatistics::State state) {
  switch (state) {
    case WorkerStatistics::State::kServing:
      return "serving";
    case WorkerStatistics::State::kStarting:
      return "starting";
    case WorkerStatistics::State::kQuarantined:
      return "quarantined";
    case WorkerStatistics::State::kCleaningUp:
      return "cleaning up";
    case WorkerStatistics::State::kWarmingUp:
      return "warming up";
  }
  return "";
}

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

py::dict asDict(const CopyCounters& copied) {
  using namespace py::literals;
  return py::dict(
      "input_outside_shared_memory"_a = copied.inputOutsideSharedMemory,
      "input_inline"_a = copied.inputInline, "input_of_other_worker"_a = copied.inputOfOtherWorker,
      "result_outside_shared_memory"_a = copied.resultOutsideSharedMemory,
      "result_inline"_a = copied.resultInline, "result_no_lease"_a = copied.resultNoLease,
      "result_weight_written"_a = copied.resultWeightWritten,
      "kept_by_model"_a = copied.keptByModel);
}

}  // namespace

void defineStatistics(py::module_& module) {
  py::class_<WorkerStatistics>(module, "WorkerStatistics", "One worker of a pool.")
      .def_readonly("index", &WorkerStatistics::index, "Its number in the pool.")
      .def_property_readonly(
          "state", [](const WorkerStatistics& self) { return nameOf(self.state); },
          "serving, starting, quarantined, cleaning up or warming up.")
      .def_readonly("process_id", &WorkerStatistics::processId, "0 while it has no process.")
      .def_readonly("calls_in_flight", &WorkerStatistics::callsInFlight,
                    "Running or next in its ring; at most two.")
      .def_readonly("sessions", &WorkerStatistics::sessions,
                    "Sessions and streams that are bound to it.")
      .def_readonly("completed_calls", &WorkerStatistics::completedCalls,
                    "Calls and steps of sessions.")
      .def_property_readonly(
          "running_for", [](const WorkerStatistics& self) { return seconds(self.runningFor); },
          "Seconds that its present call has run; 0: it runs none.")
      .def_readonly("models", &WorkerStatistics::models, "Names of the models that it has loaded.")
      .def_readonly("resident_bytes", &WorkerStatistics::residentBytes,
                    "Memory of its own, and what it still shares with its siblings since the fork.")
      .def_readonly("restarts", &WorkerStatistics::restarts, "How often it got another process.")
      .def_readonly("quarantine", &WorkerStatistics::quarantine,
                    "Why it has no process; '' if it is not quarantined.")
      .def_readonly("last_death", &WorkerStatistics::lastDeath,
                    "How its last dead process died; '' if none has.")
      .def_readonly("output_bytes", &WorkerStatistics::outputBytes, "Shared memory for results.")
      .def_readonly("output_bytes_lent", &WorkerStatistics::outputBytesLent,
                    "Of that, in results that this program still holds.");

  py::class_<ModelStatistics>(module, "ModelStatistics", "The calls of one model.")
      .def_readonly("name", &ModelStatistics::name, "Model.name.")
      .def_readonly("answered", &ModelStatistics::answered, "Calls that returned a value.")
      .def_readonly("failed", &ModelStatistics::failed, "Calls that raised.")
      .def_readonly("workers", &ModelStatistics::workers, "How many workers have it loaded.")
      .def(
          "latency",
          [](const ModelStatistics& self, double percent) {
            return seconds(self.latency.percentile(percent));
          },
          py::arg("percent"), "Seconds, as callers saw it: latency(50) is the median.");

  py::class_<PoolStatistics>(module, "PoolStatistics",
                             "A snapshot of a pool. Counters start with the pool.")
      .def_readonly("workers", &PoolStatistics::workers, "One WorkerStatistics for each worker.")
      .def_readonly("models", &PoolStatistics::models, "One ModelStatistics for each model.")
      .def_readonly("callers_waiting", &PoolStatistics::callersWaiting,
                    "Threads that wait for a worker.")
      .def_readonly("async_calls_queued", &PoolStatistics::asyncCallsQueued,
                    "Asynchronous calls that wait for a thread of the library.")
      .def_readonly("calls_rerun", &PoolStatistics::callsRerun,
                    "Calls that ran again on another worker.")
      .def_readonly("workers_replaced", &PoolStatistics::workersReplaced,
                    "Workers that died or were recycled.")
      .def_readonly("connected", &PoolStatistics::connected, "Whether the supervisor is there.")
      .def_readonly("reconnects", &PoolStatistics::reconnects,
                    "How often a shared supervisor was found again.")
      .def_property_readonly(
          "copied", [](const PoolStatistics& self) { return asDict(self.copied); },
          "Bytes of tensors that were copied since the program began, by the reason.")
      .def_readonly("input_bytes", &PoolStatistics::inputBytes,
                    "Shared memory that the program holds for arguments.")
      .def_readonly("input_largest_free_block", &PoolStatistics::inputLargestFreeBlock,
                    "The largest argument that fits without more memory from the system.")
      .def_readonly("input_bytes_in_use", &PoolStatistics::inputBytesInUse,
                    "Of that, in tensors that are alive.");
}

}  // namespace isopool::python
