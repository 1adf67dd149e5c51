// SPDX-License-Identifier: BSD-3-Clause
#include "worker/python/output_streams.h"

#include <array>
#include <utility>

namespace isopool::worker {

namespace {

struct Stream {
  const char* name;      // in sys
  PyObject* adopted;     // owned, never released; null: none yet
  PyObject* nameObject;  // owned, never released
};
std::array<Stream, 2> streams = {{{"stdout", nullptr, nullptr}, {"stderr", nullptr, nullptr}}};
// Changed with the GIL held.
bool written = true;

// Borrowed; null if user code has deleted it.
PyObject* currentStream(Stream& stream) {
  // Uses the module's dictionary: PySys_GetObject() would make a string object of the
  // name each time.
  static PyObject* const sys = PyModule_GetDict(PyRef::steal(PyImport_ImportModule("sys")).get());
  if (stream.nameObject == nullptr) stream.nameObject = PyUnicode_InternFromString(stream.name);
  return PyDict_GetItem(sys, stream.nameObject);
}

}  // namespace

void adoptOutputStreams(PyObject* out, PyObject* err) {
  PyObject* const given[] = {out, err};
  for (size_t i = 0; i < streams.size(); ++i) {
    Py_XSETREF(streams[i].adopted, Py_NewRef(given[i]));
  }
}

void noteOutput() { written = true; }

void flushOutput() {
  static PyObject* const flush = PyUnicode_InternFromString("flush");
  const bool any = std::exchange(written, false);
  for (Stream& stream : streams) {
    PyObject* current = currentStream(stream);
    if (current == nullptr || current == Py_None) continue;
    if (current == stream.adopted && !any) continue;
    // Keeps a reference: flush() may be user code that replaces the stream in sys.
    const PyRef held = PyRef::share(current);
    if (!PyRef::steal(PyObject_CallMethodNoArgs(current, flush))) PyErr_Clear();
  }
}

}  // namespace isopool::worker
