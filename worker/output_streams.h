// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "worker/py_ref.h"

namespace isopool::worker {

/// Flushes Python's stdout and stderr: print() without a newline would stay in their buffers until the
/// next call. Costs nothing worth mention if nothing was written. Not while a Python error is set,
/// which would be lost.
void flushOutput();

/// The streams that call noteOutput() for all that is written to them; None if there is none. User
/// code may put others into sys, which are flushed each time.
void adoptOutputStreams(PyObject* out, PyObject* err);
/// Something was written to an adopted stream.
void noteOutput();

}  // namespace isopool::worker
