// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Flushes sys.stdout and sys.stderr: the text of a print() without a newline would stay in the
/// buffers until the next call. Takes little time if nothing was written. May run user code, whose
/// errors are ignored. With the GIL, and not while a Python error is set, which would be lost.
void flushOutput();

/// Sets the streams that call noteOutput() on each write, or None. flushOutput() flushes these only
/// after a write; it flushes any other stream in sys each time. Keeps a reference to both until the
/// process ends or other streams are set. With the GIL.
void adoptOutputStreams(PyObject* out, PyObject* err);
/// To be called when text was written to an adopted stream. With the GIL.
void noteOutput();

}  // namespace isopool::worker
