// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/times.h"

#include <cmath>
#include <string>

namespace isopool::python {

namespace py = pybind11;

using std::chrono::nanoseconds;

nanoseconds timeOf(py::handle object, const char* what) {
  double seconds = 0;
  if (PyFloat_Check(object.ptr()) || (PyLong_Check(object.ptr()) && !PyBool_Check(object.ptr()))) {
    seconds = object.cast<double>();
  } else if (py::isinstance(object, py::module_::import("datetime").attr("timedelta"))) {
    seconds = object.attr("total_seconds")().cast<double>();
  } else {
    throw py::type_error(std::string(what) + " is a number of seconds or a timedelta, not " +
                         py::repr(object).cast<std::string>());
  }
  if (std::isnan(seconds)) throw py::value_error(std::string(what) + " is not a number");
  constexpr double kMost = 9e9;  // seconds: 285 years
  if (seconds >= kMost) return nanoseconds::max();
  if (seconds <= -kMost) return nanoseconds::min();
  return nanoseconds(std::llround(seconds * 1e9));
}

}  // namespace isopool::python
