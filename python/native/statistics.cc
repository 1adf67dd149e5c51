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
      .def_readonly("index", &WorkerStatistics::index)
      .def_property_readonly(
          "state", [](const WorkerStatistics& self) { return nameOf(self.state); },
          "serving, starting, quarantined, cleaning up or warming up.")
      .def_readonly("process_id", &WorkerStatistics::processId)
      .def_readonly("calls_in_flight", &WorkerStatistics::callsInFlight)
      .def_readonly("sessions", &WorkerStatistics::sessions)
      .def_readonly("completed_calls", &WorkerStatistics::completedCalls)
      .def_property_readonly(
          "running_for", [](const WorkerStatistics& self) { return seconds(self.runningFor); },
          "Seconds that its present call has run; 0: it runs none.")
      .def_readonly("models", &WorkerStatistics::models)
      .def_readonly("resident_bytes", &WorkerStatistics::residentBytes)
      .def_readonly("restarts", &WorkerStatistics::restarts)
      .def_readonly("quarantine", &WorkerStatistics::quarantine)
      .def_readonly("last_death", &WorkerStatistics::lastDeath)
      .def_readonly("output_bytes", &WorkerStatistics::outputBytes)
      .def_readonly("output_bytes_lent", &WorkerStatistics::outputBytesLent);

  py::class_<ModelStatistics>(module, "ModelStatistics", "The calls of one model.")
      .def_readonly("name", &ModelStatistics::name)
      .def_readonly("answered", &ModelStatistics::answered)
      .def_readonly("failed", &ModelStatistics::failed)
      .def_readonly("workers", &ModelStatistics::workers)
      .def(
          "latency",
          [](const ModelStatistics& self, double percent) {
            return seconds(self.latency.percentile(percent));
          },
          py::arg("percent"), "Seconds, as callers saw it: latency(50) is the median.");

  py::class_<PoolStatistics>(module, "PoolStatistics",
                             "A snapshot of a pool. Counters start with the pool.")
      .def_readonly("workers", &PoolStatistics::workers)
      .def_readonly("models", &PoolStatistics::models)
      .def_readonly("callers_waiting", &PoolStatistics::callersWaiting)
      .def_readonly("async_calls_queued", &PoolStatistics::asyncCallsQueued)
      .def_readonly("calls_rerun", &PoolStatistics::callsRerun)
      .def_readonly("workers_replaced", &PoolStatistics::workersReplaced)
      .def_readonly("connected", &PoolStatistics::connected)
      .def_readonly("reconnects", &PoolStatistics::reconnects)
      .def_property_readonly(
          "copied", [](const PoolStatistics& self) { return asDict(self.copied); },
          "Bytes of tensors that were copied since the program began, by the reason.")
      .def_readonly("input_bytes", &PoolStatistics::inputBytes)
      .def_readonly("input_bytes_in_use", &PoolStatistics::inputBytesInUse);
}

}  // namespace isopool::python
