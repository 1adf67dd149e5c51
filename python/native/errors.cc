// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/errors.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <exception>
#include <string>
#include <utility>

#include "isopool/errors.h"
#include "python/native/values.h"

namespace isopool::python {

namespace py = pybind11;

namespace {

void raise(const char* name, const Error& error, const py::dict& facts = {}) {
  const py::object kind = py::module_::import("isopool.errors").attr(name);
  PyErr_SetObject(kind.ptr(), kind(toText(error.what()), **facts).ptr());
}

// As its own type where this program has that, with the RemoteError as its cause.
void raiseUserError(const RemoteError& error, const py::dict& facts) {
  const py::object made =
      py::module_::import("isopool.errors")
          .attr("from_worker")(toText(error.what()), py::bytes(error.pickled()), **facts);
  PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
}

void translate(std::exception_ptr thrown) {
  using namespace py::literals;
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const RemoteError& error) {
    raiseUserError(
        error, py::dict("python_type"_a = toText(error.pythonType()),
                        "message"_a = toText(error.message()),
                        "traceback"_a = toText(error.traceback()), "worker"_a = error.worker()));
  } catch (const WorkerLost& error) {
    raise("WorkerLost", error,
          py::dict("worker"_a = error.worker(), "process_id"_a = error.processId(),
                   "signal"_a = error.signal(), "exit_code"_a = error.exitCode(),
                   "cause_known"_a = error.causeKnown(), "crash_log"_a = toText(error.crashLog()),
                   "started"_a = error.started()));
  } catch (const DeadlineExceeded& error) {
    raise("DeadlineExceeded", error, py::dict("started"_a = error.started()));
  } catch (const Cancelled& error) {
    raise("Cancelled", error, py::dict("started"_a = error.started()));
  } catch (const PoolUnavailable& error) {
    raise("PoolUnavailable", error);
  } catch (const SupervisorLost& error) {
    raise("SupervisorLost", error, py::dict("started"_a = error.started()));
  } catch (const ArenaFull& error) {
    raise("ArenaFull", error);
  } catch (const LimitExceeded& error) {
    raise("LimitExceeded", error);
  } catch (const Error& error) {
    raise("Error", error);
  } catch (const c10::Error& error) {
    // Without the C++ stack, which does not help a Python user.
    PyErr_SetObject(PyExc_RuntimeError, toText(error.what_without_backtrace()).ptr());
  }
}

}  // namespace

void raiseOf(const std::exception_ptr& error) { translate(error); }

void translateErrors() { py::register_local_exception_translator(&translate); }

}  // namespace isopool::python
