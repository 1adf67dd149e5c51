// SPDX-License-Identifier: BSD-3-Clause
// isopool._native: the C++ client for Python. isopool/__init__.py imports torch before it.
#include <pybind11/pybind11.h>

#include "isopool/shared_memory.h"
#include "python/native/errors.h"
#include "python/native/model.h"
#include "python/native/objects.h"
#include "python/native/pending_call.h"
#include "python/native/pool.h"
#include "python/native/pool_options.h"
#include "python/native/python_entry.h"
#include "python/native/statistics.h"
#include "python/native/streams.h"
#include "python/native/unlocked.h"
#include "python/native/values.h"

PYBIND11_MODULE(_native, module) {
  isopool::python::translateErrors();
  isopool::python::defineObjects(module);
  isopool::python::definePoolOptions(module);
  isopool::python::definePendingCall(module);
  isopool::python::defineStreams(module);
  isopool::python::defineStatistics(module);
  isopool::python::defineModel(module);
  isopool::python::definePool(module);
  module.def("tensor_of", &isopool::python::tensorOf, pybind11::arg("buffer"),
             "The bytes of a buffer as a uint8 tensor, without a copy. Do not write to it.");
  module.def("trim_shared_memory", &isopool::trimSharedMemory,
             pybind11::call_guard<isopool::python::GilReleased>(),
             "Returns the memory that this program shares with its workers and that is free now to "
             "the system, and the number of bytes. That happens by itself when the memory has been "
             "free for some seconds. The workers return theirs when no call runs.");
  // Handlers of the program that it registers later run before.
  pybind11::module_::import("atexit").attr("register")(
      pybind11::cpp_function(&isopool::python::PythonEntry::close));
  module.attr("version") = ISOPOOL_VERSION;
  module.attr("torch_version") = ISOPOOL_TORCH_VERSION;
}
