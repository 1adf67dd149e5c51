// SPDX-License-Identifier: BSD-3-Clause
// isopool._batch: batch jobs for Python. A module of its own: only programs that run batch jobs
// load libisopool-batch. isopool/batch_job.py imports it after isopool._native, which has
// PoolOptions.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isopool/batch.h"
#include "python/native/this_python.h"
#include "python/native/times.h"
#include "python/native/unlocked.h"
#include "python/native/values.h"

namespace isopool::python {

namespace py = pybind11;
using namespace py::literals;

namespace {

py::dict asDict(const BatchProgress& progress) {
  return py::dict("items"_a = progress.items, "done"_a = progress.done,
                  "failed"_a = progress.failed, "done_now"_a = progress.doneNow,
                  "restarts"_a = progress.restarts, "chunks"_a = progress.chunks,
                  "chunks_done"_a = progress.chunksDone, "memory"_a = progress.memory,
                  "elapsed"_a = progress.elapsed.count());
}

py::dict asDict(const BatchFailure& failure) {
  return py::dict("id"_a = toText(failure.id), "reason"_a = toString(failure.reason),
                  "phase"_a = failure.phase, "signal"_a = failure.signal,
                  "exit_code"_a = failure.exitCode, "type"_a = toText(failure.type),
                  "message"_a = toText(failure.message), "traceback"_a = toText(failure.traceback),
                  "crash_log"_a = toText(failure.crashLog), "attempts"_a = failure.attempts);
}

/// The caller's functions in a run, and the exception that one of them raised: it ends the run, and
/// is raised at its end. The run's threads call the functions, with the GIL.
class Callbacks {
 public:
  Callbacks(py::object progress, py::object failure)
      : progress_(std::move(progress)), failure_(std::move(failure)) {}

  BatchControl control() {
    BatchControl control;
    control.interrupted = [this] {
      // Also runs the handlers of signals: Ctrl-C raises KeyboardInterrupt.
      const py::gil_scoped_acquire gil;
      if (!raised_ && PyErr_CheckSignals() != 0) raised_.emplace();
      return raised_.has_value();
    };
    if (!progress_.is_none()) {
      control.progress = [this](const BatchProgress& progress) { call(progress_, progress); };
    }
    if (!failure_.is_none()) {
      control.failure = [this](const BatchFailure& failure) { call(failure_, failure); };
    }
    return control;
  }

  void rethrow() {
    if (raised_) throw py::error_already_set(*std::exchange(raised_, std::nullopt));
  }

 private:
  template <typename Event>
  void call(const py::object& function, const Event& event) {
    const py::gil_scoped_acquire gil;
    if (raised_) return;
    try {
      function(asDict(event));
    } catch (py::error_already_set& error) {
      raised_.emplace(std::move(error));
    }
  }

  const py::object progress_;
  const py::object failure_;
  std::optional<py::error_already_set> raised_;
};

template <typename Function>
py::dict completed(py::object progress, py::object failure, const Function& function) {
  Callbacks callbacks(std::move(progress), std::move(failure));
  const BatchControl control = callbacks.control();
  BatchSummary summary;
  {
    const GilReleased released;
    summary = function(control);
  }
  callbacks.rethrow();
  return py::dict("end"_a = toString(summary.end), "message"_a = toText(summary.message),
                  "progress"_a = asDict(summary.progress));
}

BatchJob jobOf(const py::dict& values, const PoolOptions& pool) {
  BatchJob job;
  job.model = values["model"].cast<std::string>();
  job.inputs = values["inputs"].cast<std::vector<std::string>>();
  job.files = values["files"].cast<bool>();
  job.output = values["output"].cast<std::string>();
  job.preprocess = values["preprocess"].cast<std::string>();
  job.postprocess = values["postprocess"].cast<std::string>();
  job.column = values["column"].cast<std::string>();
  job.batchSize = values["batch_size"].cast<uint32_t>();
  job.collation = static_cast<BatchCollation>(values["collation"].cast<int>());
  job.format = static_cast<BatchFormat>(values["format"].cast<int>());
  job.schema = values["schema"].cast<std::string>();
  if (!values["timeout"].is_none()) {
    job.timeout =
        std::chrono::duration_cast<std::chrono::milliseconds>(timeOf(values["timeout"], "timeout"));
  }
  if (!values["start_timeout"].is_none()) {
    job.startTimeout = std::chrono::duration_cast<std::chrono::milliseconds>(
        timeOf(values["start_timeout"], "start_timeout"));
  }
  job.retries = values["retries"].cast<uint32_t>();
  job.maxFailures = values["max_failures"].cast<std::optional<uint64_t>>();
  job.maxFailureShare = values["max_failure_share"].cast<std::optional<double>>();
  job.chunkItems = values["chunk_items"].cast<uint32_t>();
  job.shard = values["shard"].cast<uint32_t>();
  job.shards = values["shards"].cast<uint32_t>();
  job.update = values["update"].cast<bool>();
  job.force = values["force"].cast<bool>();
  job.pool = withThisPython(pool);
  return job;
}

void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const BatchRefused& error) {
    const py::object kind = py::module_::import("isopool.errors").attr("BatchRefused");
    PyErr_SetObject(kind.ptr(), kind(toText(error.what())).ptr());
  }
}

}  // namespace

PYBIND11_MODULE(_batch, module) {
  py::register_exception_translator(translate);
  module.def(
      "run",
      [](const py::dict& job, const PoolOptions& pool, py::object progress, py::object failure) {
        const BatchJob made = jobOf(job, pool);
        return completed(std::move(progress), std::move(failure),
                         [&made](const BatchControl& control) { return runBatch(made, control); });
      },
      "job"_a, "pool"_a, "progress"_a, "failure"_a);
  module.def(
      "retry",
      [](const std::string& output, const PoolOptions& pool, py::object progress,
         py::object failure) {
        return completed(std::move(progress), std::move(failure),
                         [&output, own = withThisPython(pool)](const BatchControl& control) {
                           return retryBatch(output, control, own);
                         });
      },
      "output"_a, "pool"_a, "progress"_a, "failure"_a);
}

}  // namespace isopool::python
