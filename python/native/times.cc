// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/times.h"

#include <cmath>
#include <limits>
#include <string>

namespace isopool::python {

namespace py = pybind11;

using std::chrono::nanoseconds;

nanoseconds timeOf(py::handle object, const char* what) {
  double seconds = 0;
  if (PyFloat_Check(object.ptr())) {
    seconds = PyFloat_AS_DOUBLE(object.ptr());
  } else if (PyLong_Check(object.ptr()) && !PyBool_Check(object.ptr())) {
    int overflow = 0;  // -1 or 1: it is beyond 64 bits
    const long long whole = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    seconds = overflow != 0 ? overflow * std::numeric_limits<double>::infinity()
                            : static_cast<double>(whole);
  } else if (py::isinstance(object, py::module_::import("datetime").attr("timedelta"))) {
    seconds = object.attr("total_seconds")().cast<double>();
  } else {
    throw py::type_error(std::string(what) + " is a number of seconds or a timedelta, not " +
                         Py_TYPE(object.ptr())->tp_name);
  }
  if (std::isnan(seconds)) throw py::value_error(std::string(what) + " is not a number");
  constexpr double kMost = 9e9;  // seconds: 285 years
  if (seconds >= kMost) return nanoseconds::max();
  if (seconds <= -kMost) return nanoseconds::min();
  return nanoseconds(std::llround(seconds * 1e9));
}

}  // namespace isopool::python
