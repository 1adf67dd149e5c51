// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Flushes Python's stdout and stderr: print() without a newline would stay in their buffers until
/// the next call. Costs nothing worth mention if nothing was written. Not while a Python error is
/// set, which would be lost.
void flushOutput();

/// The streams that hold nothing back without noteOutput(); None where there is none. Others that
/// are in sys, by user code or from the start, are flushed each time.
void adoptOutputStreams(PyObject* out, PyObject* err);
/// Something was written to an adopted stream.
void noteOutput();

}  // namespace isopool::worker
